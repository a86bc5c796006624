//! What tables of one FROM are called: no two may have the same name.

use std::collections::HashSet;

use sqlparser::ast::{TableFactor, TableWithJoins};
use syntax::names::table_name;
use values::error::{SqlResult, not_unique_alias};

/// Error 1066 for two tables of one FROM that have the same name.
pub fn unique(from: &[TableWithJoins], database: &str) -> SqlResult<()> {
    let mut seen = HashSet::new();
    let mut froms: Vec<&TableWithJoins> = from.iter().collect();
    while let Some(from) = froms.pop() {
        let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
        for factor in factors {
            let name = match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    froms.push(table_with_joins);
                    continue;
                }
                TableFactor::Table { name, alias: None, .. } => match table_name(name, database) {
                    Ok(found) => (found.database, found.table),
                    Err(_) => continue,
                },
                TableFactor::Table { name, alias: Some(alias), .. } => {
                    let of = table_name(name, database).map(|found| found.database);
                    (of.unwrap_or_default(), alias.name.value.to_lowercase())
                }
                TableFactor::Derived { alias: Some(alias), .. } => {
                    (String::new(), alias.name.value.to_lowercase())
                }
                _ => continue,
            };
            if let Some((_, name)) = seen.replace(name) {
                return Err(not_unique_alias(name));
            }
        }
    }
    Ok(())
}
