//! Flight SQL's metadata requests, answered from what the caller may see of it.
//!
//! One catalog `def`, and databases as db schemas, as information_schema says it. It must never
//! see more than it is given: the Flight server restricts the catalog to the caller.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::GetCatalogsBuilder;
use arrow_flight::sql::{
    Any, Command, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTableTypes,
    CommandGetTables,
};
use placement::api::Catalog;
use prost::Message;
use types::{Column, Table};

use crate::error::{MppCode, MppError, MppResult};
use crate::exec::answer_field;
use crate::server_info;

/// The one catalog, under information_schema's name for it.
const CATALOG: &str = "def";
/// Stored tables: JDBC's tools request this type, and Connector/J calls MySQL's tables so.
const TABLE: &str = "TABLE";
const VIEW: &str = "VIEW";
/// Most entries of a list in a request.
const LONGEST_LIST: usize = 1_000;

/// A Flight SQL request about the catalog or the server.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataRequest(Command);

impl MetadataRequest {
    /// The request that a message is; none where it is something else.
    pub fn of(message: &Any) -> MppResult<Option<MetadataRequest>> {
        let command = Command::try_from(message.clone())
            .map_err(|error| invalid(format!("unreadable Flight SQL message: {error}")))?;
        let is_one = matches!(
            command,
            Command::CommandGetSqlInfo(_)
                | Command::CommandGetXdbcTypeInfo(_)
                | Command::CommandGetCatalogs(_)
                | Command::CommandGetDbSchemas(_)
                | Command::CommandGetTables(_)
                | Command::CommandGetTableTypes(_)
                | Command::CommandGetPrimaryKeys(_)
                | Command::CommandGetExportedKeys(_)
                | Command::CommandGetImportedKeys(_)
                | Command::CommandGetCrossReference(_)
        );
        Ok(is_one.then_some(MetadataRequest(command)))
    }

    /// The request that a ticket repeats; none where it is a ticket of another kind.
    pub fn in_ticket(bytes: &[u8]) -> MppResult<Option<MetadataRequest>> {
        Any::decode(bytes).map_or(Ok(None), |message| MetadataRequest::of(&message))
    }

    /// As a ticket: the request itself, for whoever redeems it is authenticated again.
    pub fn ticket(self) -> Vec<u8> {
        self.0.into_any().encode_to_vec()
    }

    /// What the answer's columns are.
    pub fn schema(&self) -> MppResult<SchemaRef> {
        Ok(self.answer(&Catalog::default())?.schema())
    }

    /// The answer, by a catalog without what the caller may not see.
    pub fn answer(&self, catalog: &Catalog) -> MppResult<RecordBatch> {
        match self.0.clone() {
            Command::CommandGetSqlInfo(command) => {
                check_length("info", command.info.len())?;
                let info = server_info::info().map_err(wrong)?;
                command.into_builder(&info).build().map_err(wrong)
            }
            Command::CommandGetXdbcTypeInfo(command) => {
                let types = server_info::types().map_err(wrong)?;
                command.into_builder(&types).build().map_err(wrong)
            }
            Command::CommandGetCatalogs(_) => {
                let mut builder = GetCatalogsBuilder::new();
                builder.append(CATALOG);
                builder.build().map_err(wrong)
            }
            Command::CommandGetDbSchemas(command) => db_schemas(command, catalog),
            Command::CommandGetTables(command) => tables(command, catalog),
            Command::CommandGetTableTypes(command) => table_types(command),
            Command::CommandGetPrimaryKeys(command) => primary_keys(&command, catalog),
            // There are no foreign keys.
            Command::CommandGetExportedKeys(_)
            | Command::CommandGetImportedKeys(_)
            | Command::CommandGetCrossReference(_) => Ok(RecordBatch::new_empty(foreign_keys())),
            other => {
                let text = format!("Flight SQL's {} is no metadata request", other.type_url());
                Err(MppError::new(MppCode::Unsupported, text))
            }
        }
    }
}

fn invalid(text: String) -> MppError {
    MppError::new(MppCode::Invalid, text)
}

fn wrong(error: FlightError) -> MppError {
    invalid(format!("this request cannot be answered: {error}"))
}

fn check_length(what: &str, length: usize) -> MppResult<()> {
    match length {
        0..=LONGEST_LIST => Ok(()),
        _ => Err(invalid(format!("{what} lists {length} entries: at most {LONGEST_LIST}"))),
    }
}

fn db_schemas(command: CommandGetDbSchemas, catalog: &Catalog) -> MppResult<RecordBatch> {
    let mut builder = command.into_builder();
    for database in &catalog.databases {
        builder.append(CATALOG, database);
    }
    builder.build().map_err(wrong)
}

/// Tables and views. What information_schema holds is not among them: the Flight server has no such tables.
fn tables(command: CommandGetTables, catalog: &Catalog) -> MppResult<RecordBatch> {
    check_length("table_types", command.table_types.len())?;
    let with_schema = command.include_schema;
    let schema = |columns: &[Column]| match with_schema {
        true => client_schema(columns),
        false => Schema::empty(),
    };
    let mut builder = command.into_builder();
    for table in &catalog.tables {
        let columns = schema(&table.columns);
        builder.append(CATALOG, &table.database, &table.name, TABLE, &columns).map_err(wrong)?;
    }
    for view in &catalog.views {
        let columns = schema(&view.columns);
        builder.append(CATALOG, &view.database, &view.name, VIEW, &columns).map_err(wrong)?;
    }
    builder.build().map_err(wrong)
}

/// A table's columns as the answer to `SELECT *` shows them.
fn client_schema(columns: &[Column]) -> Schema {
    let shown = columns.iter().filter(|column| !column.hidden);
    let field = |column: &Column| answer_field(&column.name, Some(column.ty), column.nullable);
    Schema::new(shown.map(field).collect::<Vec<_>>())
}

fn table_types(command: CommandGetTableTypes) -> MppResult<RecordBatch> {
    let mut builder = command.into_builder();
    builder.append(TABLE);
    builder.append(VIEW);
    builder.build().map_err(wrong)
}

fn primary_keys(command: &CommandGetPrimaryKeys, catalog: &Catalog) -> MppResult<RecordBatch> {
    let is_requested = |table: &&Table| {
        let database = command.db_schema.as_ref();
        command.catalog.as_ref().is_none_or(|name| name == CATALOG)
            && database.is_none_or(|name| name.eq_ignore_ascii_case(&table.database))
            && command.table.eq_ignore_ascii_case(&table.name)
    };
    let mut found: Vec<&Table> =
        catalog.tables.iter().map(Arc::as_ref).filter(is_requested).collect();
    found.sort_by(|a, b| (&a.database, &a.name).cmp(&(&b.database, &b.name)));
    let (mut databases, mut names, mut columns, mut at) = (vec![], vec![], vec![], vec![]);
    for table in found {
        let key = table.primary_key.iter().filter_map(|id| table.column(*id));
        for (column, place) in key.filter(|column| !column.hidden).zip(1..) {
            databases.push(table.database.as_str());
            names.push(table.name.as_str());
            columns.push(column.name.as_str());
            at.push(place);
        }
    }
    let rows = at.len();
    let repeated = |text: &str| Arc::new(StringArray::from(vec![text; rows])) as ArrayRef;
    let arrays: Vec<ArrayRef> = vec![
        repeated(CATALOG),
        Arc::new(StringArray::from(databases)),
        Arc::new(StringArray::from(names)),
        Arc::new(StringArray::from(columns)),
        repeated("PRIMARY"),
        Arc::new(Int32Array::from(at)),
    ];
    let schema = Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]);
    RecordBatch::try_new(Arc::new(schema), arrays).map_err(|error| invalid(error.to_string()))
}

/// What answers about foreign keys look like.
fn foreign_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("pk_catalog_name", DataType::Utf8, true),
        Field::new("pk_db_schema_name", DataType::Utf8, true),
        Field::new("pk_table_name", DataType::Utf8, false),
        Field::new("pk_column_name", DataType::Utf8, false),
        Field::new("fk_catalog_name", DataType::Utf8, true),
        Field::new("fk_db_schema_name", DataType::Utf8, true),
        Field::new("fk_table_name", DataType::Utf8, false),
        Field::new("fk_column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::util::pretty::pretty_format_batches;
    use arrow_flight::sql::{
        CommandGetCatalogs, CommandGetExportedKeys, CommandGetSqlInfo, CommandGetXdbcTypeInfo,
        CommandStatementQuery, ProstMessageExt, SqlInfo,
    };
    use placement::api::StoredView;
    use types::{ColumnType, IntWidth};

    use super::*;

    fn column(id: u32, name: &str, ty: ColumnType) -> Column {
        Column {
            id,
            name: name.into(),
            ty,
            nullable: false,
            default: None,
            original: None,
            auto_increment: false,
            on_update_now: false,
            hidden: false,
            comment: String::new(),
        }
    }

    fn catalog() -> Catalog {
        let big = ColumnType::Int { width: IntWidth::Big, unsigned: false };
        let mut hidden = column(3, "gone", big);
        hidden.hidden = true;
        let columns = vec![column(1, "a", big), hidden, column(2, "b", ColumnType::Varchar(9))];
        let table = |database: &str, name: &str| Table {
            id: 1,
            version: 1,
            database: database.into(),
            name: name.into(),
            columns: columns.clone(),
            primary_key: vec![2, 1],
            indexes: Vec::new(),
            columnar_replicas: 0,
            comment: String::new(),
            dropped: Vec::new(),
            checks: Vec::new(),
        };
        let view = StoredView {
            database: "d".into(),
            name: "v_1".into(),
            columns: vec![column(1, "n", ColumnType::Json)],
            query: "SELECT 1".into(),
            tables: Vec::new(),
            definer: "root@%".into(),
            invoker: false,
        };
        Catalog {
            databases: vec!["d".into(), "e".into(), "information_schema".into()],
            tables: [table("e", "u"), table("d", "t"), table("d", "vx1")].map(Arc::new).into(),
            views: vec![view],
            ..Catalog::default()
        }
    }

    fn answer(message: &impl ProstMessageExt) -> RecordBatch {
        let request = MetadataRequest::of(&message.as_any()).unwrap().unwrap();
        let again = MetadataRequest::in_ticket(&request.clone().ticket()).unwrap();
        assert_eq!(again, Some(request.clone()), "a ticket repeats its request");
        let batch = request.answer(&catalog()).unwrap();
        assert_eq!(batch.schema(), request.schema().unwrap());
        batch
    }

    fn names(batch: &RecordBatch, column: usize) -> Vec<String> {
        let texts = batch.column(column).as_string::<i32>().iter();
        texts.map(|text| text.unwrap().to_owned()).collect()
    }

    fn all_tables() -> CommandGetTables {
        CommandGetTables::default()
    }

    #[test]
    fn databases_are_schemas_of_one_catalog() {
        assert_eq!(names(&answer(&CommandGetCatalogs {}), 0), ["def"]);
        let schemas = |catalog: Option<&str>, pattern: Option<&str>| {
            let (catalog, pattern) = (catalog.map(str::to_owned), pattern.map(str::to_owned));
            let command = CommandGetDbSchemas { catalog, db_schema_filter_pattern: pattern };
            names(&answer(&command), 1)
        };
        assert_eq!(schemas(None, None), ["d", "e", "information_schema"]);
        assert_eq!(schemas(Some("def"), Some("_")), ["d", "e"]);
        assert!(schemas(Some(""), None).is_empty() && schemas(Some("d"), None).is_empty());
        assert_eq!(names(&answer(&CommandGetTableTypes {}), 0), ["TABLE", "VIEW"]);
    }

    #[test]
    fn tables_are_found_by_type_and_pattern() {
        let found = |command: CommandGetTables| names(&answer(&command), 2);
        assert_eq!(found(all_tables()), ["t", "v_1", "vx1", "u"]);
        let of_type = |ty: &str| CommandGetTables { table_types: vec![ty.into()], ..all_tables() };
        assert_eq!(found(of_type("TABLE")), ["t", "vx1", "u"]);
        assert_eq!(found(of_type("VIEW")), ["v_1"]);
        assert!(found(of_type("BASE TABLE")).is_empty());
        let named = |pattern: &str| CommandGetTables {
            db_schema_filter_pattern: Some("d".into()),
            table_name_filter_pattern: Some(pattern.into()),
            ..all_tables()
        };
        assert_eq!(found(named("v_1")), ["v_1", "vx1"]);
        assert_eq!(found(named("v\\_1")), ["v_1"]);
        assert!(found(named("u")).is_empty());
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let long = CommandGetTables { table_types: vec!["x".into(); 1_001], ..all_tables() };
        let request = MetadataRequest::of(&long.as_any()).unwrap().unwrap();
        assert_eq!(request.answer(&catalog()).unwrap_err().code, MppCode::Invalid);
    }

    #[test]
    fn a_tables_schema_is_what_a_query_shows() {
        let batch = answer(&CommandGetTables { include_schema: true, ..all_tables() });
        let schemas = batch.column(4).as_binary::<i32>();
        let schema = |at: usize| {
            let message = arrow_flight::IpcMessage(schemas.value(at).to_vec().into());
            Schema::try_from(message).unwrap()
        };
        let fields = [("a", DataType::Int64, "bigint"), ("b", DataType::Utf8, "varchar(9)")];
        let fields = fields.map(|(name, ty, mysql)| {
            let says = [("isobar.type", mysql), ("isobar.not_null", "")];
            let says = says.map(|(key, value)| (key.to_owned(), value.to_owned()));
            Field::new(name, ty, true).with_metadata(says.into())
        });
        assert_eq!(schema(0), Schema::new(fields.to_vec()));
        assert_eq!(schema(1), Schema::new(vec![answer_field("n", Some(ColumnType::Json), false)]));
    }

    #[test]
    fn primary_keys_are_in_their_own_order_and_foreign_keys_are_none() {
        let command = CommandGetPrimaryKeys { catalog: None, db_schema: None, table: "T".into() };
        let shown = pretty_format_batches(&[answer(&command)]).unwrap().to_string();
        let rows: Vec<String> = shown.lines().skip(3).map(|line| line.replace(' ', "")).collect();
        assert_eq!(rows[..2], ["|def|d|t|b|PRIMARY|1|", "|def|d|t|a|PRIMARY|2|"]);
        assert_eq!(rows.len(), 3);
        let elsewhere = CommandGetPrimaryKeys { db_schema: Some("e".into()), ..command };
        assert_eq!(answer(&elsewhere).num_rows(), 0);
        let command = CommandGetExportedKeys { catalog: None, db_schema: None, table: "t".into() };
        let none = answer(&command);
        assert_eq!((none.num_rows(), none.num_columns()), (0, 13));
    }

    #[test]
    fn the_server_answers_what_it_is_asked() {
        let requested = vec![SqlInfo::FlightSqlServerName as u32, 9_999];
        let batch = answer(&CommandGetSqlInfo { info: requested });
        let shown = pretty_format_batches(&[batch]).unwrap().to_string();
        assert!(shown.contains("{string_value=Isobar}") && shown.lines().count() == 5, "{shown}");
        assert!(answer(&CommandGetSqlInfo { info: vec![] }).num_rows() > 50);
        let dates = answer(&CommandGetXdbcTypeInfo { data_type: Some(91) });
        assert_eq!(names(&dates, 0), ["DATE"]);
    }

    #[test]
    fn a_query_is_no_metadata_request() {
        let query = CommandStatementQuery { query: "SELECT 1".into(), transaction_id: None };
        assert_eq!(MetadataRequest::of(&query.as_any()).unwrap(), None);
        assert_eq!(MetadataRequest::in_ticket(b"{no ticket").unwrap(), None);
    }
}
