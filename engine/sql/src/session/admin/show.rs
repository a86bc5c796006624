//! SHOW and DESCRIBE, as the mysql client, pymysql and Connector/J read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::DFSchema;
use functions::regexp::matches;
use functions::value::value_at;
use placement::api::{Catalog, StoredView};
use sqlparser::ast::ObjectName;
use syntax::names::{TableName, table_name};
use syntax::statement::{Filter, Show, ShowKind};
use types::{Table, TableId, Value};
use values::error::{SqlResult, no_database, no_database_selected, no_resource_group, not_of_kind};

use super::status::{STATUS, Sources};
use crate::session::ddl::views;
use crate::session::query::tables::stored;
use crate::session::{Session, Warning};
use crate::variables::Variables;
use execution::reply::Reply;
use information_schema::{LONGEST_INFO, Listing, Sizes, Source, int, string};

/// Characters of a statement in SHOW PROCESSLIST without FULL.
const SHORT_INFO: usize = 100;

impl Session {
    /// SHOW.
    pub(in crate::session) async fn show(&mut self, show: Show) -> SqlResult<Reply> {
        let listing = match show.kind {
            ShowKind::Warnings { errors, window } => {
                let entries = self.diagnostics.listed(self.variables.most_warnings()).into_iter();
                warnings(entries.filter(|entry| !errors || entry.level == "Error"), window)
            }
            ShowKind::WarningCount { errors } => match (errors, self.diagnostics.counts()) {
                (true, (_, errors)) => counted("error_count", errors),
                (false, (all, _)) => counted("warning_count", all),
            },
            ShowKind::Variables { global } => self.show_variables(global).await?,
            ShowKind::Status => self.show_status(),
            ShowKind::Grants(user) => self.show_grants(user).await?,
            ShowKind::Engines => renamed(
                information_schema::engines(),
                &["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"],
            ),
            ShowKind::Collation => renamed(
                information_schema::collations(),
                &["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen", "Pad_attribute"],
            ),
            ShowKind::CharacterSet => {
                let mut listing = information_schema::character_sets();
                // SHOW orders these columns otherwise than information_schema.
                listing.columns.swap(1, 2);
                listing.rows.iter_mut().for_each(|row| row.swap(1, 2));
                renamed(listing, &["Charset", "Description", "Default collation", "Maxlen"])
            }
            ShowKind::Empty(of) => Listing::of(columns_of_none(&of)),
            other => {
                let catalog = self.shown_catalog().await?;
                self.show_counted(other, &catalog, &show.filter).await?
            }
        };
        self.filtered(listing, show.filter)?.reply()
    }

    /// What the session's user may see of the present catalog.
    async fn shown_catalog(&mut self) -> SqlResult<Arc<Catalog>> {
        self.engine.storage.timestamp().await?;
        let (rights, catalog) = self.rights().await?;
        Ok(rights.visible(&catalog))
    }

    /// What shows AUTO_INCREMENT numbers, which are asked for; everything else.
    async fn show_counted(
        &self,
        kind: ShowKind,
        catalog: &Arc<Catalog>,
        filter: &Filter,
    ) -> SqlResult<Listing> {
        let rights = &self.identity.known_rights();
        let source = self.engine.source(catalog, rights);
        Ok(match kind {
            ShowKind::Config => {
                renamed(source.cluster_config().await?, &["Type", "Instance", "Name", "Value"])
            }
            ShowKind::TableStatus { database } => {
                let database = self.named_database(database, catalog)?;
                let numbers = source.next_numbers(catalog.tables_of(&database)).await?;
                table_status(catalog, &database, &numbers, &source.sizes().await?)
            }
            ShowKind::CreateView(name) => {
                let found = table_name(&name, self.variables.database())?;
                match catalog.view_named(&found.database, &found.table) {
                    Some(view) => show_view(view, self.variables.database())?,
                    None => {
                        let table = stored(catalog, &found.database, &found.table)?;
                        return Err(not_of_kind(&table.database, &table.name, "VIEW"));
                    }
                }
            }
            ShowKind::CreateTable(table) => {
                let found = table_name(&table, self.variables.database())?;
                if let Some(view) = catalog.view_named(&found.database, &found.table) {
                    return show_view(view, self.variables.database());
                }
                let table = self.named_table(&table, catalog)?;
                let numbers = source.next_numbers([&*table]).await?;
                let text = definitions::show_create(
                    &table,
                    catalog.foreign_keys.of(table.id),
                    numbers.get(&table.id).copied(),
                );
                let mut listing = Listing::of(&["Table", "Create Table"]);
                listing.rows.push(vec![string(&table.name), string(text)]);
                listing
            }
            ShowKind::CreateResourceGroup(name) => {
                let group =
                    catalog.resources.named(&name).ok_or_else(|| no_resource_group(&name))?;
                let mut listing = Listing::of(&["Resource_Group", "Create Resource Group"]);
                listing.rows.push(vec![string(&group.name), string(group.to_string())]);
                listing
            }
            ShowKind::Columns { table, full } => {
                let table = self.shown_table(&table, &source).await?;
                let own = rights.on_columns(&table.database, &table.name);
                show_columns(&table, full.then_some(own.as_str()))
            }
            ShowKind::Index { table } => show_index(&*self.shown_table(&table, &source).await?),
            other => self.show_named(other, catalog, filter)?,
        })
    }

    fn show_named(
        &self,
        kind: ShowKind,
        catalog: &Arc<Catalog>,
        filter: &Filter,
    ) -> SqlResult<Listing> {
        let rights = &self.identity.known_rights();
        let source = self.engine.source(catalog, rights);
        Ok(match kind {
            ShowKind::Databases => {
                let mut listing = Listing::of(&["Database"]);
                listing.rows =
                    source.databases().into_iter().map(|name| vec![string(name)]).collect();
                listing
            }
            ShowKind::Tables { database, full } => {
                let database = self.named_database(database, catalog)?;
                let pattern = match filter {
                    Filter::Like(pattern) => format!(" ({pattern})"),
                    _ => String::new(),
                };
                let title = format!("Tables_in_{database}{pattern}");
                let mut listing = if full {
                    Listing::of(&[&title, "Table_type"])
                } else {
                    Listing::of(&[&title])
                };
                let mut names: Vec<(String, &str)> = if information_schema::is_virtual(&database) {
                    information_schema::shown_in(&database)
                } else {
                    let tables = catalog.tables_of(&database);
                    let tables = tables.map(|table| (table.name.clone(), "BASE TABLE"));
                    let views = catalog.views_of(&database).map(|view| (view.name.clone(), "VIEW"));
                    tables.chain(views).collect()
                };
                names.sort();
                let row = |(name, kind): (String, &str)| match full {
                    true => vec![string(name), string(kind)],
                    false => vec![string(name)],
                };
                listing.rows = names.into_iter().map(row).collect();
                listing
            }
            ShowKind::CreateDatabase(name) => {
                let name = self.named_database(Some(name), catalog)?;
                let mut listing = Listing::of(&["Database", "Create Database"]);
                let create = format!(
                    "CREATE DATABASE `{name}` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */"
                );
                listing.rows.push(vec![string(name), string(create)]);
                listing
            }
            other => {
                let full = matches!(other, ShowKind::Processlist { full: true });
                renamed(
                    source.processlist(if full { LONGEST_INFO } else { SHORT_INFO }),
                    &["Id", "User", "Host", "db", "Command", "Time", "State", "Info"],
                )
            }
        })
    }

    fn named_database(&self, name: Option<String>, catalog: &Catalog) -> SqlResult<String> {
        let name = match name {
            Some(name) => name,
            None if self.variables.database().is_empty() => return Err(no_database_selected()),
            None => self.variables.database().to_owned(),
        };
        match catalog.database_named(&name) {
            Some(spelled) => Ok(spelled.to_owned()),
            None if information_schema::is_virtual(&name) => Ok(name),
            None => Err(no_database(&name)),
        }
    }

    fn named_table(&self, name: &ObjectName, catalog: &Catalog) -> SqlResult<Arc<Table>> {
        let name = table_name(name, self.variables.database())?;
        match catalog.view_named(&name.database, &name.table) {
            Some(view) => Ok(Arc::new(view.described())),
            None => stored(catalog, &name.database, &name.table),
        }
    }

    /// A table, a view, or a virtual table, as its columns are shown.
    async fn shown_table(&self, name: &ObjectName, source: &Source<'_>) -> SqlResult<Arc<Table>> {
        let TableName { database, table } = table_name(name, self.variables.database())?;
        if information_schema::is_virtual(&database) {
            let listing = source.listing(&database, &table).await?;
            return Ok(Arc::new(listing.table(&database, &table)));
        }
        self.named_table(name, source.catalog)
    }

    async fn show_variables(&self, global: bool) -> SqlResult<Listing> {
        let mut listing = Listing::of(&["Variable_name", "Value"]);
        let globals = self.globals().await?;
        let variables = match global {
            true => Variables::of_everybody(globals),
            false => self.variables.with_globals(&globals),
        };
        let rows =
            variables.all().into_iter().map(|(name, value)| vec![string(name), string(value)]);
        listing.rows = rows.collect();
        Ok(listing)
    }

    fn show_status(&self) -> Listing {
        let mut listing = Listing::of(&["Variable_name", "Value"]);
        let sources = Sources {
            last_query: self.diagnostics.last_query(),
            bound_queries: &self.engine.bound_queries,
            host: self.engine.host.as_deref(),
        };
        let rows = STATUS
            .iter()
            .map(|variable| vec![string(variable.name), string(variable.value(&sources))]);
        listing.rows = rows.collect();
        listing
    }

    /// DESCRIBE.
    pub(in crate::session) async fn describe(
        &mut self,
        table: &ObjectName,
        column: Option<String>,
    ) -> SqlResult<Reply> {
        let catalog = self.shown_catalog().await?;
        let rights = &self.identity.known_rights();
        let source = self.engine.source(&catalog, rights);
        let listing = show_columns(&*self.shown_table(table, &source).await?, None);
        let filter = column.map_or(Filter::All, Filter::Like);
        self.filtered(listing, filter)?.reply()
    }

    fn filtered(&self, mut listing: Listing, filter: Filter) -> SqlResult<Listing> {
        match filter {
            Filter::All => {}
            Filter::Like(pattern) => {
                let pattern = pattern.to_lowercase();
                listing.rows.retain(|row| match row.first() {
                    Some(Value::String(text)) => {
                        matches(&text.to_lowercase(), &pattern, Some('\\'))
                    }
                    _ => false,
                });
            }
            Filter::Where(condition) => {
                let batch = listing.batch()?;
                let schema = DFSchema::try_from(binder::caseless(&batch.schema()))?;
                let condition = binder::truth(*condition);
                let compiled = self.compiled(condition, &schema)?;
                let keep = compiled.evaluate(&batch)?.into_array(batch.num_rows())?;
                let mut at = 0;
                let mut failed = None;
                listing.rows.retain(|_| {
                    let value = value_at(&keep, at);
                    at += 1;
                    match value {
                        Ok(value) => value == Value::Int(1),
                        Err(error) => {
                            failed = Some(error);
                            false
                        }
                    }
                });
                if let Some(error) = failed {
                    return Err(error);
                }
            }
        }
        Ok(listing)
    }
}

/// The columns of a list of what there is none of.
fn columns_of_none(of: &str) -> &'static [&'static str] {
    match of {
        "PLUGINS" => &["Name", "Status", "Type", "Library", "License"],
        "OPEN TABLES" => &["Database", "Table", "#In_use", "#Name_locked"],
        "PRIVILEGES" => &["Privilege", "Context", "Comment"],
        "PROFILES" => &["#Query_ID", "Duration", "Query"],
        "TRIGGERS" => &[
            "Trigger",
            "Event",
            "Table",
            "Statement",
            "Timing",
            "Created",
            "sql_mode",
            "Definer",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ],
        "EVENTS" => &[
            "Db",
            "Name",
            "Definer",
            "Time zone",
            "Type",
            "Execute at",
            "Interval value",
            "Interval field",
            "Starts",
            "Ends",
            "Status",
            "#Originator",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ],
        _ => &[
            "Db",
            "Name",
            "Type",
            "Definer",
            "Modified",
            "Created",
            "Security_type",
            "Comment",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ],
    }
}

fn renamed(mut listing: Listing, names: &[&str]) -> Listing {
    for (column, name) in listing.columns.iter_mut().zip(names) {
        column.name = (*name).to_owned();
    }
    listing
}

/// A number under the name of the variable that has it, too.
fn counted(name: &str, count: u64) -> Listing {
    let mut listing = Listing::of(&[&format!("#@@session.{name}")]);
    listing.rows.push(vec![int(count)]);
    listing
}

fn warnings(entries: impl Iterator<Item = Warning>, (skip, most): (u64, u64)) -> Listing {
    let mut listing = Listing::of(&["Level", "#Code", "Message"]);
    let row = |entry: Warning| vec![string(entry.level), int(entry.code), string(entry.message)];
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    listing.rows = entries.skip(count(skip)).take(count(most)).map(row).collect();
    listing
}

/// SHOW COLUMNS; `full` says what one may do with the table's columns.
fn show_columns(table: &Table, full: Option<&str>) -> Listing {
    let mut listing = if full.is_some() {
        Listing::of(&[
            "Field",
            "Type",
            "Collation",
            "Null",
            "Key",
            "Default",
            "Extra",
            "Privileges",
            "Comment",
        ])
    } else {
        Listing::of(&["Field", "Type", "Null", "Key", "Default", "Extra"])
    };
    for column in table.columns.iter().filter(|column| !column.hidden) {
        let text = column.ty.is_text();
        let mut row = vec![string(&column.name), string(column.ty.to_string())];
        if full.is_some() {
            row.push(if text { string("utf8mb4_bin") } else { Value::Null });
        }
        row.push(information_schema::yes(column.nullable));
        row.push(string(information_schema::column_key(table, column.id)));
        row.push(information_schema::default_text(column));
        row.push(string(information_schema::extra(column)));
        if let Some(privileges) = full {
            row.push(string(privileges));
            row.push(string(&column.comment));
        }
        listing.rows.push(row);
    }
    listing
}

fn show_index(table: &Table) -> Listing {
    let mut listing = Listing::of(&[
        "Table",
        "#Non_unique",
        "Key_name",
        "#Seq_in_index",
        "Column_name",
        "Collation",
        "#Cardinality",
        "#Sub_part",
        "Packed",
        "Null",
        "Index_type",
        "Comment",
        "Index_comment",
        "Visible",
        "Expression",
    ]);
    for part in information_schema::keys(table) {
        listing.rows.push(vec![
            string(&table.name),
            int(i64::from(!part.unique)),
            string(part.key),
            int(part.at),
            string(part.column),
            string(if part.descending { "D" } else { "A" }),
            Value::Null,
            part.prefix.map_or(Value::Null, int),
            Value::Null,
            string(if part.nullable { "YES" } else { "" }),
            string("BTREE"),
            string(""),
            string(""),
            string(if part.visible { "YES" } else { "NO" }),
            Value::Null,
        ]);
    }
    listing
}

fn table_status(
    catalog: &Catalog,
    database: &str,
    numbers: &BTreeMap<TableId, u64>,
    sizes: &Sizes,
) -> Listing {
    let mut listing = Listing::of(&[
        "Name",
        "Engine",
        "#Version",
        "Row_format",
        "#Rows",
        "#Avg_row_length",
        "#Data_length",
        "#Max_data_length",
        "#Index_length",
        "#Data_free",
        "#Auto_increment",
        "Create_time",
        "Update_time",
        "Check_time",
        "Collation",
        "#Checksum",
        "Create_options",
        "Comment",
    ]);
    for table in catalog.tables_of(database) {
        let mut row = vec![string(&table.name), string("InnoDB"), int(10), string("Dynamic")];
        row.extend(sizes.of_table(table.id));
        row.push(numbers.get(&table.id).map_or(Value::Null, |number| int(*number)));
        row.extend(std::iter::repeat_n(Value::Null, 3));
        row.extend([string("utf8mb4_bin"), Value::Null, string(""), string(&table.comment)]);
        listing.rows.push(row);
    }
    for view in catalog.views_of(database) {
        let mut row = vec![string(&view.name)];
        row.extend(std::iter::repeat_n(Value::Null, 16));
        row.push(string("VIEW"));
        listing.rows.push(row);
    }
    listing.rows.sort_by_cached_key(|row| row.first().map(ToString::to_string));
    listing
}

/// SHOW CREATE VIEW.
fn show_view(view: &StoredView, database: &str) -> SqlResult<Listing> {
    let mut listing =
        Listing::of(&["View", "Create View", "character_set_client", "collation_connection"]);
    let security = if view.invoker { "INVOKER" } else { "DEFINER" };
    let (name, host) = view.definer.split_once('@').unwrap_or((&view.definer, "%"));
    let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
    let text = format!(
        "CREATE ALGORITHM=UNDEFINED DEFINER={}@{} SQL SECURITY {security} VIEW {} AS {}",
        quote(name),
        quote(host),
        quote(&view.name),
        views::text_within(view, database)?
    );
    let row = [view.name.as_str(), &text, "utf8mb4", "utf8mb4_bin"];
    listing.rows.push(row.into_iter().map(string).collect());
    Ok(listing)
}
