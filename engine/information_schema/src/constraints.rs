//! Constraints as information_schema lists them: keys, foreign keys and checks.

use types::foreign_key::Way;
use types::{ColumnType, ForeignKey, Value};

use super::schema::{CATALOG, keys};
use super::{Listing, Source, int, string, yes};

impl Source<'_> {
    pub(super) fn key_column_usage(&self) -> Listing {
        let mut listing = Listing::of(&[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "COLUMN_NAME",
            "#ORDINAL_POSITION",
            "#POSITION_IN_UNIQUE_CONSTRAINT",
            "REFERENCED_TABLE_SCHEMA",
            "REFERENCED_TABLE_NAME",
            "REFERENCED_COLUMN_NAME",
        ]);
        for table in &self.catalog.tables {
            for part in keys(table).into_iter().filter(|part| part.unique) {
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(part.key),
                    string(CATALOG),
                    string(&table.database),
                    string(&table.name),
                    string(part.column),
                    int(part.at),
                    Value::Null,
                    Value::Null,
                    Value::Null,
                    Value::Null,
                ]);
            }
            for key in self.catalog.foreign_keys.of(table.id) {
                for ((at, own), referenced) in (1..).zip(&key.columns).zip(&key.referenced) {
                    listing.rows.push(vec![
                        string(CATALOG),
                        string(&table.database),
                        string(&key.name),
                        string(CATALOG),
                        string(&table.database),
                        string(&table.name),
                        string(own),
                        int(at),
                        int(at),
                        string(&key.parent.0),
                        string(&key.parent.1),
                        string(referenced),
                    ]);
                }
            }
        }
        listing
    }

    pub(super) fn table_constraints(&self) -> Listing {
        let mut listing = Listing::of(&[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "CONSTRAINT_TYPE",
            "ENFORCED",
        ]);
        for table in &self.catalog.tables {
            for part in keys(table).into_iter().filter(|part| part.unique && part.at == 1) {
                let kind = if part.key == "PRIMARY" { "PRIMARY KEY" } else { "UNIQUE" };
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(part.key),
                    string(&table.database),
                    string(&table.name),
                    string(kind),
                    string("YES"),
                ]);
            }
            for key in self.catalog.foreign_keys.of(table.id) {
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(&key.name),
                    string(&table.database),
                    string(&table.name),
                    string("FOREIGN KEY"),
                    string("YES"),
                ]);
            }
            for check in &table.checks {
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(&check.name),
                    string(&table.database),
                    string(&table.name),
                    string("CHECK"),
                    yes(check.enforced),
                ]);
            }
        }
        listing
    }

    pub(super) fn check_constraints(&self) -> Listing {
        let mut listing = Listing::of(&[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "CHECK_CLAUSE",
        ]);
        for column in listing.columns.iter_mut().skip(3) {
            column.ty = ColumnType::Text(u32::MAX);
        }
        for table in &self.catalog.tables {
            for check in &table.checks {
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(&check.name),
                    string(&check.expression),
                ]);
            }
        }
        listing
    }

    /// Foreign keys and what they refer to.
    pub(super) fn referential_constraints(&self) -> Listing {
        let mut listing = Listing::of(&[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "UNIQUE_CONSTRAINT_CATALOG",
            "UNIQUE_CONSTRAINT_SCHEMA",
            "UNIQUE_CONSTRAINT_NAME",
            "MATCH_OPTION",
            "UPDATE_RULE",
            "DELETE_RULE",
            "TABLE_NAME",
            "REFERENCED_TABLE_NAME",
        ]);
        for table in &self.catalog.tables {
            for key in self.catalog.foreign_keys.of(table.id) {
                listing.rows.push(vec![
                    string(CATALOG),
                    string(&table.database),
                    string(&key.name),
                    string(CATALOG),
                    string(&key.parent.0),
                    self.parents_key(key).map_or(Value::Null, string),
                    string("NONE"),
                    string(key.on_update.to_string()),
                    string(key.on_delete.to_string()),
                    string(&table.name),
                    string(&key.parent.1),
                ]);
            }
        }
        listing
    }

    /// The name of the key that a foreign key refers to, while its table is there.
    fn parents_key(&self, key: &ForeignKey) -> Option<String> {
        let parent = self.catalog.table_named(&key.parent.0, &key.parent.1)?;
        let positions = key.referenced_positions(parent)?;
        let ids: Option<Vec<_>> =
            positions.iter().map(|at| parent.columns.get(*at).map(|column| column.id)).collect();
        Some(match Way::to_parent(parent, &ids?)? {
            Way::Records => "PRIMARY".into(),
            Way::Entries(index) => index.name,
        })
    }
}
