//! Flight SQL's prepared statements: made, bound and turned into queries.
//!
//! It must never run one itself: a bound statement goes the way of any other query.

use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery,
    DoPutPreparedStatementResult, ProstMessageExt,
};
use arrow_flight::{FlightData, IpcMessage, PutResult, SchemaAsIpc};
use binder::QueryContext;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::{Status, Streaming};
use types::Value;

use super::{FlightServer, unsupported};
use crate::auth::Caller;
use crate::error::{MppCode, MppError, MppResult, refused};
use crate::exec::answer_schema;
use crate::prepared::{Prepared, few_rows, parameters};
use crate::request::SqlCommand;

pub(super) const CREATE: &str = "CreatePreparedStatement";
pub(super) const CLOSE: &str = "ClosePreparedStatement";
/// Most parameters of a statement, as in MySQL.
const MOST_PARAMETERS: usize = 65_535;

fn invalid(text: impl Into<String>) -> MppError {
    MppError::new(MppCode::Invalid, text)
}

fn unpacked<M: ProstMessageExt>(body: &[u8]) -> MppResult<Option<M>> {
    let unreadable =
        |error: &dyn std::fmt::Display| invalid(format!("unreadable Flight SQL message: {error}"));
    let any = Any::decode(body).map_err(|error| unreadable(&error))?;
    any.unpack().map_err(|error| unreadable(&error))
}

fn message(schema: &Schema) -> MppResult<Bytes> {
    let options = IpcWriteOptions::default();
    let written: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &options).try_into();
    written.map(|message| message.0).map_err(|error| invalid(error.to_string()))
}

impl FlightServer {
    /// CreatePreparedStatement: a handle, and what is known of parameters and answer.
    pub(super) async fn create_statement(&self, body: &[u8], caller: &Caller) -> MppResult<Bytes> {
        let request: ActionCreatePreparedStatementRequest =
            unpacked(body)?.ok_or_else(|| invalid(format!("{CREATE} lacks its request")))?;
        if request.transaction_id.is_some_and(|id| !id.is_empty()) {
            let text = "Flight SQL's transactions are not offered";
            return Err(MppError::new(MppCode::Unsupported, text));
        }
        let query = request.query;
        let count = syntax::bound::parameters(&query).map_err(|error| refused(&error))?;
        if count > MOST_PARAMETERS {
            return Err(invalid("Prepared statement contains too many placeholders"));
        }
        let unknown = vec![Value::Null; count];
        let text = syntax::bound::bound(&query, &unknown).map_err(|error| refused(&error))?;
        let ts = self.engine.timestamp().await?;
        let mut context = QueryContext { user: caller.user.clone(), ..Default::default() };
        self.engine.check_query(&text, &context.database, caller).await?;
        let dataset_schema = match self.engine.bind(&text, &mut context, ts).await {
            Ok((_, columns)) => message(&answer_schema(&columns))?,
            // NULL may not stand for every parameter: the columns are known once they are bound.
            Err(error) if count > 0 && error.code == MppCode::Invalid => Bytes::new(),
            Err(error) => return Err(error),
        };
        // A parameter may be of any type, and a text becomes what it is compared with.
        let field = |at: usize| Field::new(format!("parameter_{at}"), DataType::Utf8, true);
        let parameter_schema = message(&Schema::new((1..=count).map(field).collect::<Vec<_>>()))?;
        let key = self.engine.placement.signing_key().await?;
        let handle = Prepared { query, parameters: Vec::new() }.seal(&key)?;
        let result = ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            dataset_schema,
            parameter_schema,
        };
        Ok(result.as_any().encode_to_vec().into())
    }

    /// ClosePreparedStatement: there is nothing to let go of, but a forged handle is an error.
    pub(super) async fn close_statement(&self, body: &[u8]) -> MppResult<()> {
        let request: ActionClosePreparedStatementRequest =
            unpacked(body)?.ok_or_else(|| invalid(format!("{CLOSE} lacks its request")))?;
        self.opened(&request.prepared_statement_handle).await.map(drop)
    }

    async fn opened(&self, handle: &[u8]) -> MppResult<Prepared> {
        Prepared::open(handle, &self.engine.placement.signing_key().await?)
    }

    /// The query that a handle stands for, with its parameters in it.
    pub(super) async fn bound_command(&self, handle: &[u8]) -> MppResult<SqlCommand> {
        let Prepared { query, parameters } = self.opened(handle).await?;
        let query = syntax::bound::bound(&query, &parameters).map_err(|error| refused(&error))?;
        let (database, resource_group) = (String::new(), None);
        Ok(SqlCommand { query, database, snapshot: None, context: None, resource_group })
    }

    /// DoPut of parameters: answers the handle of the statement that has them.
    pub(super) async fn bind(
        &self,
        mut stream: Streaming<FlightData>,
    ) -> Result<PutResult, Status> {
        let Some(first) = stream.message().await? else { return Err(unsupported("DoPut")) };
        let command = first.flight_descriptor.as_ref().map(|descriptor| descriptor.cmd.clone());
        let command: Option<CommandPreparedStatementQuery> =
            unpacked(&command.unwrap_or_default())?;
        let Some(command) = command else { return Err(unsupported("DoPut")) };
        let mut prepared = self.opened(&command.prepared_statement_handle).await?;
        let rest = stream.map_err(|status| FlightError::Tonic(Box::new(status)));
        let batches = few_rows(futures::stream::once(async { Ok(first) }).chain(rest)).await?;
        prepared.parameters = parameters(&batches)?;
        let handle =
            prepared.seal(&self.engine.placement.signing_key().await.map_err(MppError::from)?)?;
        let result =
            DoPutPreparedStatementResult { prepared_statement_handle: Some(handle.into()) };
        Ok(PutResult { app_metadata: result.encode_to_vec().into() })
    }
}
