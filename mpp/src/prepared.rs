//! Flight SQL's prepared statements: handles that hold all there is to know of one.
//!
//! Nothing is kept between calls, so any node takes the next one. A handle is no permission: whoever
//! presents it is checked as if it had sent the query. It must never be logged.

use std::panic::AssertUnwindSafe;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type,
    Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use futures::{FutureExt, Stream, TryStreamExt};
use serde::{Deserialize, Serialize};
use types::{Decimal, Value, token};

use crate::error::{MppCode, MppError, MppResult};

const FORMAT: u8 = 1;
/// Keeps a handle from passing for a ticket, which the same key signs.
const PURPOSE: &[u8] = b"prepared statement";
const TAG: usize = 16;
/// Longest handle, in bytes: every call carries it.
const LONGEST: usize = 4 << 20;
/// Most batches in which one row may come.
const MOST_BATCHES: usize = 16;
const DAY_US: i64 = 86_400_000_000;
/// The years 0000 to 9999, in days since 1970-01-01.
const DAYS: std::ops::RangeInclusive<i64> = -719_528..=2_932_896;
/// 838:59:59, in microseconds.
const LONGEST_TIME: i64 = 3_020_399_000_000;

/// A query and the values of its parameters; none before they are bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Text.
    pub query: String,
    /// In the order of the text.
    pub parameters: Vec<Value>,
}

fn invalid(text: impl Into<String>) -> MppError {
    MppError::new(MppCode::Invalid, text)
}

fn signed(body: &[u8]) -> Vec<u8> {
    [PURPOSE, body].concat()
}

impl Prepared {
    /// As opaque bytes: `format | content | tag`.
    pub fn seal(&self, key: &[u8]) -> MppResult<Vec<u8>> {
        let content = postcard::to_allocvec(self)
            .map_err(|error| invalid(format!("prepared statement: {error}")))?;
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&content);
        let tag = token::sign(key, &signed(&bytes));
        bytes.extend_from_slice(&tag);
        match bytes.len() {
            0..=LONGEST => Ok(bytes),
            length => Err(invalid(format!(
                "the query and its parameters are {length} bytes: at most {LONGEST}"
            ))),
        }
    }

    /// From bytes that anybody may have made up: checks the signature before reading anything.
    pub fn open(bytes: &[u8], key: &[u8]) -> MppResult<Self> {
        let forged = || {
            MppError::new(
                MppCode::TicketForged,
                "this prepared statement was not made by this cluster: prepare it again",
            )
        };
        let at = bytes.len().checked_sub(TAG).filter(|_| bytes.len() <= LONGEST);
        let (body, tag) = bytes.split_at(at.ok_or_else(forged)?);
        token::verify(key, &signed(body), tag).map_err(|_| forged())?;
        Self::decode(body)
    }

    /// The part behind the signature check; [`fuzz_prepared`] tries it by itself.
    fn decode(body: &[u8]) -> MppResult<Self> {
        let bad = || invalid("this prepared statement is of an unknown format: prepare it again");
        match body.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

/// Takes any bytes as a handle, and as the signed part of one; for the fuzzer. Returns whether they
/// were one.
pub fn fuzz_prepared(data: &[u8]) -> bool {
    let key = [7; 32];
    Prepared::open(data, &key).is_ok() | Prepared::decode(data).is_ok()
}

/// The batches that a client sends, up to the second row.
pub async fn few_rows(
    stream: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
) -> MppResult<Vec<RecordBatch>> {
    let read = async {
        let mut stream = FlightRecordBatchStream::new_from_flight_data(stream);
        let (mut batches, mut rows) = (Vec::new(), 0);
        while let Some(batch) = stream.try_next().await? {
            rows += batch.num_rows();
            batches.push(batch);
            if rows > 1 || batches.len() > MOST_BATCHES {
                break;
            }
        }
        Ok::<_, FlightError>(batches)
    };
    // arrow-ipc asserts that a message's buffers lie within its body.
    match AssertUnwindSafe(read).catch_unwind().await {
        Ok(read) => {
            read.map_err(|error| invalid(format!("the parameters cannot be read: {error}")))
        }
        Err(_) => Err(invalid("the parameters cannot be read: a message contradicts itself")),
    }
}

/// The values of the one row that a client binds.
pub fn parameters(batches: &[RecordBatch]) -> MppResult<Vec<Value>> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let row = batches.iter().find(|batch| batch.num_rows() == 1);
    let Some(row) = row.filter(|_| rows == 1) else {
        let text = format!("a query takes one row of parameters, and {rows} are bound");
        return Err(MppError::new(MppCode::Unsupported, text));
    };
    let numbered = row.columns().iter().enumerate();
    numbered
        .map(|(at, array)| {
            value(array)?.ok_or_else(|| {
                let text = format!("parameter {} of type {}", at + 1, array.data_type());
                MppError::new(
                    MppCode::Unsupported,
                    format!("{text} is not supported, or too large"),
                )
            })
        })
        .collect()
}

/// An array's first value; none where MySQL has no such value.
fn value(array: &ArrayRef) -> MppResult<Option<Value>> {
    let to = |ty: DataType| {
        cast(array, &ty).map_err(|error| invalid(format!("a parameter cannot be read: {error}")))
    };
    if array.data_type() == &DataType::Null || array.is_null(0) {
        return Ok(Some(Value::Null));
    }
    Ok(match array.data_type() {
        DataType::Boolean => Some(Value::Int(i64::from(array.as_boolean().value(0)))),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Some(Value::Int(to(DataType::Int64)?.as_primitive::<Int64Type>().value(0)))
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            Some(Value::UInt(to(DataType::UInt64)?.as_primitive::<UInt64Type>().value(0)))
        }
        DataType::Float32 => {
            let n = array.as_primitive::<Float32Type>().value(0);
            n.is_finite().then_some(Value::Float(n))
        }
        DataType::Float64 => {
            let n = array.as_primitive::<Float64Type>().value(0);
            n.is_finite().then_some(Value::Double(n))
        }
        DataType::Decimal128(_, scale) => {
            let unscaled = array.as_primitive::<Decimal128Type>().value(0);
            let scale = u8::try_from(*scale).ok().filter(|scale| *scale <= 38);
            scale.map(|scale| Value::Decimal(Decimal { unscaled, scale }))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Some(Value::String(to(DataType::Utf8)?.as_string::<i32>().value(0).to_owned()))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            Some(Value::Bytes(to(DataType::Binary)?.as_binary::<i32>().value(0).to_vec()))
        }
        DataType::Date32 | DataType::Date64 => {
            let days = to(DataType::Date32)?.as_primitive::<Date32Type>().value(0);
            DAYS.contains(&i64::from(days)).then_some(Value::Date(days))
        }
        DataType::Timestamp(_, zone) => {
            let array = to(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            let us = array.as_primitive::<TimestampMicrosecondType>().value(0);
            let value = if zone.is_some() { Value::Timestamp(us) } else { Value::DateTime(us) };
            DAYS.contains(&us.div_euclid(DAY_US)).then_some(value)
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let array = to(DataType::Time64(TimeUnit::Microsecond))?;
            Some(Value::Time(array.as_primitive::<Time64MicrosecondType>().value(0)))
        }
        DataType::Duration(_) => {
            let array = to(DataType::Duration(TimeUnit::Microsecond))?;
            let us = array.as_primitive::<DurationMicrosecondType>().value(0);
            (-LONGEST_TIME..=LONGEST_TIME).contains(&us).then_some(Value::Time(us))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int32Array, NullArray, StringArray};
    use arrow_flight::utils::batches_to_flight_data;

    use super::*;

    fn row(columns: Vec<ArrayRef>) -> RecordBatch {
        let named =
            columns.into_iter().enumerate().map(|(at, array)| (at.to_string(), array, true));
        RecordBatch::try_from_iter_with_nullable(named).unwrap()
    }

    #[test]
    fn a_handle_is_read_as_it_was_written_and_no_other_is() {
        let key = [3; 32];
        let made =
            Prepared { query: "SELECT ?".into(), parameters: vec![Value::Int(1), Value::Null] };
        let bytes = made.seal(&key).unwrap();
        assert_eq!(Prepared::open(&bytes, &key).unwrap(), made);
        for at in 0..bytes.len() {
            let code = Prepared::open(&bytes[..at], &key).unwrap_err().code;
            assert_eq!(code, MppCode::TicketForged, "the first {at} bytes");
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Prepared::open(&other, &key).unwrap_err().code, MppCode::TicketForged);
            fuzz_prepared(&bytes[..at]);
        }
        let long = Prepared { query: "x".repeat(LONGEST), parameters: vec![] };
        assert_eq!(long.seal(&key).unwrap_err().code, MppCode::Invalid);
    }

    #[test]
    fn a_damaged_message_is_refused_or_read_and_nothing_else() {
        let batch = row(vec![
            Arc::new(Int32Array::from(vec![7])),
            Arc::new(StringArray::from(vec!["ann"])),
            Arc::new(Decimal128Array::from(vec![150]).with_precision_and_scale(5, 2).unwrap()),
        ]);
        let sent = batches_to_flight_data(&batch.schema(), vec![batch]).unwrap();
        let read = |sent: Vec<FlightData>| {
            let batches = few_rows(futures::stream::iter(sent.into_iter().map(Ok)));
            batches.now_or_never().unwrap().and_then(|batches| parameters(&batches))
        };
        assert_eq!(read(sent.clone()).unwrap().len(), 3);
        let mut refused = 0;
        for message in 0..sent.len() {
            for at in 0..sent[message].data_header.len() {
                for bit in [0, 3, 7] {
                    let mut damaged = sent.clone();
                    let mut header = damaged[message].data_header.to_vec();
                    header[at] ^= 1 << bit;
                    damaged[message].data_header = header.into();
                    refused += usize::from(read(damaged).is_err());
                }
            }
            let mut short = sent.clone();
            short[message].data_body = bytes::Bytes::new();
            assert_eq!(read(short).is_err(), !sent[message].data_body.is_empty());
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn one_row_of_parameters_is_taken() {
        let price = Decimal128Array::from(vec![150]).with_precision_and_scale(5, 2).unwrap();
        let one = row(vec![
            Arc::new(Int32Array::from(vec![7])),
            Arc::new(StringArray::from(vec!["ann"])),
            Arc::new(price),
            Arc::new(NullArray::new(1)),
        ]);
        let want = vec![
            Value::Int(7),
            Value::String("ann".into()),
            Value::Decimal(Decimal { unscaled: 150, scale: 2 }),
            Value::Null,
        ];
        assert_eq!(parameters(std::slice::from_ref(&one)).unwrap(), want);
        assert_eq!(parameters(&[one.clone(), one]).unwrap_err().code, MppCode::Unsupported);
        assert_eq!(parameters(&[]).unwrap_err().code, MppCode::Unsupported);
    }
}
