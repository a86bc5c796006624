//! Options of a table: what is done for each of them, in one list.
//!
//! Nothing is accepted in silence: what says how rows are stored changes nothing here and is a
//! warning, as of InnoDB's; what would change what a table means is refused by name.

use sqlparser::ast::{
    CommentDef, CreateTable, CreateTableOptions, Expr, HiveDistributionStyle, SqlOption,
};
use values::error::{
    SqlError, SqlResult, column_comment_too_long, no_engine, option_ignored, other_engine, syntax,
    table_comment_too_long, unsupported,
};

use crate::charsets::{check_charset, check_collation};

/// Longest comment of a table, in characters (MySQL's limit).
const MAX_TABLE_COMMENT: usize = 2_048;
/// Longest comment of a column, in characters (MySQL's limit).
const MAX_COLUMN_COMMENT: usize = 1_024;

/// What becomes of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treated {
    /// The table's comment from now on.
    Comment(String),
    /// The next AUTO_INCREMENT number, if none as high was given.
    Number(u64),
    /// It says what is so anyhow.
    Nothing,
    /// It has no effect, and the client is warned.
    Warning(SqlError),
}

/// What an option does.
enum Does {
    /// It is the comment.
    Comment,
    /// It moves the AUTO_INCREMENT counter.
    Number,
    /// It names a character set: UTF-8 or nothing.
    Charset,
    /// It names a collation: bytes or nothing.
    Collation,
    /// It names a storage engine: there is one, in whose place others are known.
    Engine,
    /// It says how InnoDB or another engine stores rows; what they mean stays the same.
    Physical,
    /// It is a switch that must be off.
    Off(&'static [&'static str]),
    /// It would change where rows are, or what they are.
    Refused,
}

/// Every option of a table in MySQL's grammar, without the word DEFAULT before it.
const OPTIONS: &[(&str, Does)] = &[
    ("AUTOEXTEND_SIZE", Does::Physical),
    ("AUTO_INCREMENT", Does::Number),
    ("AVG_ROW_LENGTH", Does::Physical),
    ("CHARACTER SET", Does::Charset),
    ("CHARSET", Does::Charset),
    ("CHECKSUM", Does::Physical),
    ("COLLATE", Does::Collation),
    ("COMMENT", Does::Comment),
    ("COMPRESSION", Does::Physical),
    ("CONNECTION", Does::Refused),
    ("DATA DIRECTORY", Does::Refused),
    ("DELAY_KEY_WRITE", Does::Physical),
    ("ENCRYPTION", Does::Off(&["N", "NO"])),
    ("ENGINE", Does::Engine),
    ("ENGINE_ATTRIBUTE", Does::Refused),
    ("INDEX DIRECTORY", Does::Refused),
    ("INSERT_METHOD", Does::Refused),
    ("KEY_BLOCK_SIZE", Does::Physical),
    ("MAX_ROWS", Does::Physical),
    ("MIN_ROWS", Does::Physical),
    ("PACK_KEYS", Does::Physical),
    ("PASSWORD", Does::Refused),
    ("ROW_FORMAT", Does::Physical),
    ("SECONDARY_ENGINE", Does::Off(&["NULL"])),
    ("SECONDARY_ENGINE_ATTRIBUTE", Does::Refused),
    ("START TRANSACTION", Does::Refused),
    ("STATS_AUTO_RECALC", Does::Physical),
    ("STATS_PERSISTENT", Does::Physical),
    ("STATS_SAMPLE_PAGES", Does::Physical),
    ("TABLESPACE", Does::Refused),
    ("UNION", Does::Refused),
];

/// Other storage engines of MySQL and MariaDB: a table of one of them is stored as any other, as where MySQL is built without
/// the engine.
const ENGINES: [&str; 21] = [
    "ARCHIVE",
    "ARIA",
    "BDB",
    "BERKELEYDB",
    "BLACKHOLE",
    "COLUMNSTORE",
    "CONNECT",
    "CSV",
    "EXAMPLE",
    "FEDERATED",
    "HEAP",
    "MARIA",
    "MEMORY",
    "MERGE",
    "MRG_MYISAM",
    "MYISAM",
    "NDB",
    "NDBCLUSTER",
    "ROCKSDB",
    "SPIDER",
    "TOKUDB",
];

/// Whether a word, or two, begins an option that has a value of one word, number or text.
pub fn is_option(name: &str) -> bool {
    OPTIONS.iter().any(|(known, _)| *known == name)
}

/// What becomes of an option of a table, by its name in upper case and its value.
pub fn treated(name: &str, value: &str, table: &str) -> SqlResult<Treated> {
    let refused = || unsupported(format!("table option {name} = {value}"));
    let Some((_, does)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
        return Err(refused());
    };
    Ok(match does {
        Does::Comment => Treated::Comment(table_comment(value, table)?),
        Does::Number => match value.parse() {
            Ok(number) => Treated::Number(number),
            Err(_) => return Err(syntax(format!("AUTO_INCREMENT = {value} is no number"))),
        },
        Does::Charset => warned(check_charset(value)?),
        Does::Collation => {
            check_collation(value)?;
            Treated::Nothing
        }
        Does::Engine if value.eq_ignore_ascii_case("InnoDB") => Treated::Nothing,
        Does::Engine if ENGINES.iter().any(|known| value.eq_ignore_ascii_case(known)) => {
            Treated::Warning(other_engine(table))
        }
        Does::Engine => {
            return Err(no_engine(value));
        }
        Does::Physical => Treated::Warning(option_ignored(name)),
        Does::Off(values) if values.iter().any(|off| value.eq_ignore_ascii_case(off)) => {
            Treated::Nothing
        }
        Does::Off(_) | Does::Refused => return Err(refused()),
    })
}

fn warned(warning: Option<SqlError>) -> Treated {
    warning.map_or(Treated::Nothing, Treated::Warning)
}

fn table_comment(text: &str, table: &str) -> SqlResult<String> {
    if text.chars().count() > MAX_TABLE_COMMENT {
        return Err(table_comment_too_long(table, MAX_TABLE_COMMENT));
    }
    Ok(text.to_owned())
}

/// A column's comment, if it is not too long.
pub fn column_comment(text: &str, column: &str) -> SqlResult<String> {
    if text.chars().count() > MAX_COLUMN_COMMENT {
        return Err(column_comment_too_long(column, MAX_COLUMN_COMMENT));
    }
    Ok(text.to_owned())
}

/// The options of a CREATE TABLE, each with what becomes of it.
pub fn of_create(create: &CreateTable, table: &str) -> SqlResult<Vec<Treated>> {
    refuse_forms(create)?;
    let options = match &create.table_options {
        CreateTableOptions::Plain(options) => options.as_slice(),
        CreateTableOptions::None => &[],
        _ => return Err(unsupported("CREATE TABLE … WITH (…)")),
    };
    options.iter().map(|option| of_option(option, table)).collect()
}

fn of_option(option: &SqlOption, table: &str) -> SqlResult<Treated> {
    match option {
        SqlOption::KeyValue { key, value } => {
            let value = match value {
                Expr::Value(value) => {
                    value.clone().into_string().unwrap_or_else(|| value.to_string())
                }
                Expr::Identifier(word) => word.value.clone(),
                other => other.to_string(),
            };
            let name = key.value.to_uppercase();
            treated(name.strip_prefix("DEFAULT ").unwrap_or(&name), &value, table)
        }
        SqlOption::Comment(CommentDef::WithEq(text) | CommentDef::WithoutEq(text)) => {
            treated("COMMENT", text, table)
        }
        SqlOption::NamedParenthesizedList(list) if list.values.is_empty() => {
            let value = list.name.as_ref().map(|name| name.value.as_str());
            treated(&list.key.value.to_uppercase(), value.unwrap_or_default(), table)
        }
        other => Err(unsupported(format!("table option {other}"))),
    }
}

/// Refuses what other systems say in a CREATE TABLE, and the parser takes in.
pub fn refuse_forms(create: &CreateTable) -> SqlResult<()> {
    let forms = [
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.temporary || create.global.is_some() || create.volatile, "TEMPORARY TABLE"),
        (create.external || create.transient || create.dynamic, "EXTERNAL TABLE"),
        (create.iceberg || create.snapshot, "ICEBERG TABLE"),
        (create.like.is_some(), "CREATE TABLE … LIKE"),
        (create.clone.is_some(), "CREATE TABLE … CLONE"),
        (create.partition_by.is_some() || create.partition_of.is_some(), "PARTITION BY"),
        (create.without_rowid, "WITHOUT ROWID"),
        (create.strict, "STRICT"),
        (create.on_commit.is_some(), "ON COMMIT"),
        (create.on_cluster.is_some(), "ON CLUSTER"),
        (create.order_by.is_some(), "CREATE TABLE … ORDER BY"),
        (create.cluster_by.is_some() || create.clustered_by.is_some(), "CLUSTER BY"),
        (create.inherits.is_some(), "INHERITS"),
        (create.hive_formats.is_some() || create.location.is_some(), "ROW FORMAT, STORED AS"),
        (!matches!(create.hive_distribution, HiveDistributionStyle::NONE), "PARTITIONED BY"),
    ];
    match forms.iter().find(|(there, _)| *there) {
        Some((_, form)) => Err(unsupported(form)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_kept_warned_of_or_refused() {
        for (name, _) in OPTIONS {
            let value = match *name {
                "AUTO_INCREMENT" => "7",
                "COLLATE" => "utf8mb4_bin",
                "CHARSET" | "CHARACTER SET" => "utf8mb4",
                "ENGINE" => "InnoDB",
                "ENCRYPTION" => "Y",
                _ => "x",
            };
            match treated(name, value, "t") {
                Ok(Treated::Nothing) => {
                    assert!(["COLLATE", "CHARSET", "CHARACTER SET", "ENGINE"].contains(name));
                }
                Ok(Treated::Comment(_)) => assert_eq!(*name, "COMMENT"),
                Ok(Treated::Number(n)) => assert_eq!((*name, n), ("AUTO_INCREMENT", 7)),
                Ok(Treated::Warning(warning)) => {
                    assert!(warning.code == 1478 && warning.message.contains(name), "{warning}");
                }
                Err(error) => {
                    assert!(error.code == 1235 && error.message.contains(name), "{error}");
                }
            }
        }
        assert_eq!(treated("ENGINE", "nosuch", "t").unwrap_err().code, 1286);
        let Ok(Treated::Warning(warning)) = treated("ENGINE", "memory", "t") else {
            panic!("an engine that is known")
        };
        assert_eq!(warning.code, 1266);
        assert_eq!(treated("NOSUCH", "x", "t").unwrap_err().code, 1235);
        let long = "x".repeat(MAX_TABLE_COMMENT + 1);
        assert_eq!(treated("COMMENT", &long, "t").unwrap_err().code, 1628);
    }
}
