//! Rows or columns: which engine answers a query, and why.
//!
//! A pure decision over facts that the session gathers. A query is answered by one engine as a
//! whole; what columns are not meant to answer for one table, rows answer for all. Columns that
//! are away for now are no reason for rows to be scanned.

use std::collections::BTreeMap;

use syntax::hints::Engine;

/// What is known of one table of a query.
#[derive(Clone, Debug)]
pub struct TableFacts {
    /// Database and table.
    pub name: String,
    /// Other names that a hint may use.
    pub aliases: Vec<String>,
    /// Whether it is stored; information_schema is not.
    pub stored: bool,
    /// Columnar replicas wanted.
    pub replicas: u8,
    /// Whether every region has a columnar replica with data.
    pub available: bool,
    /// Whether that was so before, since replicas were asked for.
    pub complete: bool,
    /// Whether the open transaction has written it.
    pub written: bool,
    /// Whether the conditions leave only a part of it, by key or index.
    pub narrow: bool,
}

/// What is known of a query.
#[derive(Clone, Debug)]
pub struct QueryFacts {
    /// Tables.
    pub tables: Vec<TableFacts>,
    /// Hints by table or alias, in lower case.
    pub hints: BTreeMap<String, Engine>,
    /// Engines that the session allows (`isobar_read_engines`).
    pub rows_allowed: bool,
    /// The same, of columns.
    pub columns_allowed: bool,
    /// FOR UPDATE, FOR SHARE.
    pub locking: bool,
    /// Whether there is an analytic tier.
    pub tier: bool,
    /// Whether rows are to answer where columns are away (`isobar_fallback`).
    pub fallback: bool,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Who answers.
    pub engine: Engine,
    /// For each table: name, and why its engine.
    pub reasons: Vec<(String, String)>,
    /// For SHOW WARNINGS.
    pub warnings: Vec<String>,
    /// Why the session's engines allow no way, if so.
    pub refused: Option<String>,
}

/// Decides.
pub fn route(facts: &QueryFacts) -> Route {
    let mut warnings = Vec::new();
    let verdicts: Vec<(Option<Engine>, bool, String)> =
        facts.tables.iter().map(|table| verdict(table, facts, &mut warnings)).collect();
    // A forced table decides for the query; otherwise one table that is better read from columns.
    let forced_rows =
        verdicts.iter().position(|(e, forced, _)| *e == Some(Engine::Rows) && *forced);
    let columns = verdicts.iter().any(|(e, _, _)| *e == Some(Engine::Columns));
    let engine = if columns && forced_rows.is_none() { Engine::Columns } else { Engine::Rows };
    let mut reasons = Vec::new();
    for (at, (table, (own, _, why))) in facts.tables.iter().zip(&verdicts).enumerate() {
        let why = match (own, forced_rows) {
            (Some(Engine::Columns), Some(other)) if other != at => {
                format!(
                    "{} is read from rows, and one engine answers a query",
                    facts.tables[other].name
                )
            }
            (Some(Engine::Rows), None) if engine == Engine::Columns => {
                "another table is better read from columns, and one engine answers a query".into()
            }
            _ => why.clone(),
        };
        reasons.push((table.name.clone(), why));
    }
    let refused = match engine {
        Engine::Rows if !facts.rows_allowed => {
            let stored = facts.tables.iter().zip(&reasons).find(|(table, _)| table.stored);
            stored.map(|(table, (_, why))| {
                format!("isobar_read_engines allows columns only, and {} cannot be read from them: {why}", table.name)
            })
        }
        _ => None,
    };
    Route { engine, reasons, warnings, refused }
}

/// The decision, if it is the same for the same reasons whatever [`TableFacts::narrow`] says: then nobody needs to find that
/// out.
pub fn route_without_narrow(facts: &mut QueryFacts) -> Option<Route> {
    let mut with = |narrow| {
        facts.tables.iter_mut().for_each(|table| table.narrow = narrow);
        route(facts)
    };
    let narrow = with(true);
    (narrow == with(false)).then_some(narrow)
}

/// The engine of one table by itself, whether nothing else will do, and why.
fn verdict(
    table: &TableFacts,
    facts: &QueryFacts,
    warnings: &mut Vec<String>,
) -> (Option<Engine>, bool, String) {
    let hint = table.aliases.iter().find_map(|alias| facts.hints.get(alias));
    let rows = |why: &str| (Some(Engine::Rows), true, why.to_owned());
    if !table.stored {
        return rows("made in memory");
    }
    let obstacle = if facts.locking {
        Some("locking reads go to rows")
    } else if table.written {
        Some("the open transaction has written it")
    } else if !facts.columns_allowed {
        Some("isobar_read_engines allows rows only")
    } else if !facts.tier {
        Some("no columnar node serves this SQL node")
    } else if table.replicas == 0 {
        Some("it has no columnar replica")
    } else if !table.available && !table.complete {
        Some("its columnar replica is not available yet")
    } else if !table.available && facts.fallback && facts.rows_allowed {
        Some("its columnar replica is away, and isobar_fallback is rows")
    } else {
        None
    };
    match (hint, obstacle) {
        (Some(Engine::Rows), _) => rows("hint"),
        (Some(Engine::Columns), Some(why)) => {
            warnings.push(format!(
                "hint READ_FROM_STORAGE cannot be followed for {}: {why}",
                table.name
            ));
            rows(why)
        }
        (_, Some(why)) => rows(why),
        (Some(Engine::Columns), None) => (Some(Engine::Columns), true, "hint".into()),
        (None, None) if !facts.rows_allowed => {
            (Some(Engine::Columns), true, "isobar_read_engines allows columns only".into())
        }
        (None, None) if table.narrow => (Some(Engine::Rows), false, "access by key".into()),
        (None, None) => {
            let replica = if table.available { "an available" } else { "a (now unavailable)" };
            let why = format!("full scan of a table with {replica} columnar replica");
            (Some(Engine::Columns), false, why)
        }
    }
}

/// Which engines `isobar_read_engines` (or TiDB's variable) allows: rows, columns.
pub fn allowed(text: &str) -> (bool, bool) {
    let words: Vec<String> = text.split(',').map(|word| word.trim().to_lowercase()).collect();
    let any = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
    (any(&["rows", "row", "tikv"]), any(&["columns", "columnar", "tiflash"]))
}
