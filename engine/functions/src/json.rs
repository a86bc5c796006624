//! JSON functions that read: arguments, NULLs and MySQL's error numbers around the pure module
//! [`values::json`].
//!
//! In plans a JSON value is a LargeUtf8 column, and nothing else is one: that is how a document is
//! distinguished from a text that may be the text of one. A LargeUtf8 column must hold normal forms only.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int64Array, LargeStringArray,
    LargeStringBuilder, StringArray,
};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use types::Value;
use values::error::{
    SqlResult, json_of_bytes, json_one_or_all, json_path_to_many, json_too_big, json_too_deep,
    no_json_argument, wrong_arguments, wrong_json_path, wrong_json_type,
};
use values::json::{self, DEEPEST, Doc, Path};
use values::temporal::{format_date, format_datetime};

use super::convert::json::unreadable;
use super::convert::{decimal_f64, to_strings};
use super::kinds::{is_binary, is_json, is_string};
use super::value::value_at;
use super::{Function, text, truth, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("json_extract", 2..=999, document, extract),
    Function::new("json_unquote", 1..=1, text, unquote),
    Function::new("json_quote", 1..=1, text, quote),
    Function::new("json_valid", 1..=1, whole, valid),
    Function::new("json_type", 1..=1, text, type_of),
    Function::new("json_depth", 1..=1, whole, depth),
    Function::new("json_length", 1..=2, whole, length),
    Function::new("json_keys", 1..=2, document, keys),
    Function::new("json_contains", 2..=3, whole, contains),
    Function::new("json_contains_path", 3..=999, whole, contains_path),
    Function::new("json_overlaps", 2..=2, whole, overlaps),
    Function::new("json_search", 3..=999, document, search),
    Function::new("json_value", 2..=2, text, value),
    Function::new("json_pretty", 1..=1, text, pretty),
    // What the planner writes for MEMBER OF, and for comparisons.
    Function::new("mysql_json_member_of", 2..=2, whole, member_of),
    Function::new("mysql_json_key", 1..=1, |_, _| Ok(DataType::Binary), key),
    Function::new("isobar_json_spells", 2..=2, truth, spells),
];

/// Returns: JSON.
pub(super) fn document(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::LargeUtf8)
}

/// One argument of a call.
enum Input<'a> {
    Json(&'a LargeStringArray),
    Text(StringArray),
    Other(&'a ArrayRef),
}

/// The arguments of a call, row by row.
pub(super) struct Args<'a> {
    /// As MySQL's messages call the function.
    name: &'static str,
    inputs: Vec<Input<'a>>,
    rows: usize,
    paths: RefCell<HashMap<String, Rc<Path>>>,
}

impl<'a> Args<'a> {
    pub(super) fn new(name: &'static str, args: &'a [ArrayRef]) -> SqlResult<Self> {
        let input = |array: &'a ArrayRef| {
            Ok(match array.data_type() {
                ty if is_json(ty) => Input::Json(array.as_string()),
                ty if is_string(ty) => Input::Text(to_strings(array)?),
                _ => Input::Other(array),
            })
        };
        let inputs = args.iter().map(input).collect::<SqlResult<_>>()?;
        let rows = args.first().map_or(0, |array| array.len());
        Ok(Args { name, inputs, rows, paths: RefCell::default() })
    }

    /// How many arguments there are.
    pub(super) fn len(&self) -> usize {
        self.inputs.len()
    }

    pub(super) fn is_null(&self, at: usize, row: usize) -> bool {
        match self.inputs.get(at) {
            Some(Input::Json(array)) => array.is_null(row),
            Some(Input::Text(array)) => array.is_null(row),
            // An array of NULLs has no bits that say so.
            Some(Input::Other(array)) => array.is_null(row) || *array.data_type() == DataType::Null,
            None => true,
        }
    }

    /// The document that an argument is or spells; NULL is `None`.
    pub(super) fn document(&self, at: usize, row: usize) -> SqlResult<Option<Doc>> {
        if self.is_null(at, row) {
            return Ok(None);
        }
        let (number, name) = (at + 1, self.name);
        let spelled = match self.inputs.get(at) {
            Some(Input::Json(array)) => array.value(row),
            Some(Input::Text(array)) => array.value(row),
            Some(Input::Other(array)) if is_binary(array.data_type()) => {
                return Err(json_of_bytes());
            }
            _ => {
                return Err(no_json_argument(number, name));
            }
        };
        json::parse(spelled).map(Some).map_err(|fault| unreadable(fault, number, name))
    }

    /// An argument as text; NULL is `None`.
    pub(super) fn text(&self, at: usize, row: usize) -> SqlResult<Option<Cow<'_, str>>> {
        if self.is_null(at, row) {
            return Ok(None);
        }
        Ok(match self.inputs.get(at) {
            Some(Input::Json(array)) => Some(array.value(row).into()),
            Some(Input::Text(array)) => Some(array.value(row).into()),
            Some(Input::Other(array)) => {
                let text = to_strings(&array.slice(row, 1))?;
                text.iter().next().flatten().map(|text| text.to_owned().into())
            }
            None => None,
        })
    }

    /// An argument as a value of a document: a JSON value as itself, any other as what it is in
    /// JSON, NULL as `null`.
    pub(super) fn value(&self, at: usize, row: usize) -> SqlResult<Doc> {
        if self.is_null(at, row) {
            return Ok(Doc::Null);
        }
        match self.inputs.get(at) {
            Some(Input::Text(array)) => Ok(Doc::String(array.value(row).to_owned())),
            Some(Input::Other(array)) => scalar(array, row),
            _ => Ok(self.document(at, row)?.unwrap_or(Doc::Null)),
        }
    }

    /// The path that an argument spells; NULL is `None`.
    pub(super) fn path(&self, at: usize, row: usize) -> SqlResult<Option<Rc<Path>>> {
        let Some(text) = self.text(at, row)? else { return Ok(None) };
        let mut known = self.paths.borrow_mut();
        if let Some(path) = known.get(&*text) {
            return Ok(Some(path.clone()));
        }
        let path = Path::parse(&text).map_err(|bad| wrong_json_path(bad.0))?;
        let path = Rc::new(path);
        known.insert(text.into_owned(), path.clone());
        Ok(Some(path))
    }

    /// A path that leads to one value at most; NULL is `None`.
    pub(super) fn plain_path(&self, at: usize, row: usize) -> SqlResult<Option<Rc<Path>>> {
        let path = self.path(at, row)?;
        if path.as_ref().is_some_and(|path| !path.is_plain()) {
            return Err(json_path_to_many());
        }
        Ok(path)
    }

    /// Whether all of what is found is wanted, and not only the first; NULL is `None`.
    fn all(&self, at: usize, row: usize) -> SqlResult<Option<bool>> {
        let Some(text) = self.text(at, row)? else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "one" => Ok(Some(false)),
            "all" => Ok(Some(true)),
            _ => Err(json_one_or_all(self.name)),
        }
    }

    /// A column of documents, by row.
    pub(super) fn documents(
        &self,
        mut of: impl FnMut(usize) -> SqlResult<Option<Doc>>,
    ) -> SqlResult<ArrayRef> {
        let mut out = LargeStringBuilder::new();
        for row in 0..self.rows {
            match of(row)? {
                Some(document) => out.append_value(checked(&document)?),
                None => out.append_null(),
            }
        }
        Ok(Arc::new(out.finish()))
    }

    /// A column of texts, by row.
    pub(super) fn texts(
        &self,
        of: impl FnMut(usize) -> SqlResult<Option<String>>,
    ) -> SqlResult<ArrayRef> {
        Ok(Arc::new((0..self.rows).map(of).collect::<SqlResult<StringArray>>()?))
    }

    /// A column of numbers, by row.
    fn numbers(&self, of: impl FnMut(usize) -> SqlResult<Option<i64>>) -> SqlResult<ArrayRef> {
        Ok(Arc::new((0..self.rows).map(of).collect::<SqlResult<Int64Array>>()?))
    }
}

/// The text of a document that a function has made, unless it has become too deep or too large.
fn checked(document: &Doc) -> SqlResult<String> {
    if document.depth() > DEEPEST {
        return Err(json_too_deep());
    }
    let text = document.text();
    if text.len() > super::string::LONGEST {
        return Err(json_too_big());
    }
    Ok(text)
}

/// An SQL value, which is neither text nor NULL, in JSON. Times are texts there, and numbers with
/// digits behind the point doubles.
pub(super) fn scalar(array: &ArrayRef, row: usize) -> SqlResult<Doc> {
    if let Some(truths) = array.as_boolean_opt() {
        return Ok(Doc::Bool(truths.value(row)));
    }
    let whole = |n: u64| i64::try_from(n).map_or(Doc::UInt(n), Doc::Int);
    let exact = |n: types::Decimal| match (n.scale, i64::try_from(n.unscaled)) {
        (0, Ok(n)) => Doc::Int(n),
        (0, Err(_)) => match u64::try_from(n.unscaled) {
            Ok(n) => Doc::UInt(n),
            Err(_) => Doc::Double(decimal_f64(n)),
        },
        _ => Doc::Double(decimal_f64(n)),
    };
    Ok(match value_at(array, row)? {
        Value::Null => Doc::Null,
        Value::Int(n) => Doc::Int(n),
        Value::UInt(n) => whole(n),
        Value::Double(n) => Doc::Double(n),
        Value::Float(n) => Doc::Double(f64::from(n)),
        Value::Decimal(n) => exact(n),
        Value::Wide(n) => match n.narrow() {
            Some(n) => exact(n),
            None => Doc::Double(n.to_string().parse().unwrap_or(0.0)),
        },
        Value::String(text) => Doc::String(text),
        Value::Date(days) => Doc::String(format_date(days)),
        Value::DateTime(us) | Value::Timestamp(us) => Doc::String(format_datetime(us, 6)),
        Value::Time(us) => Doc::String(types::value::format_time(us, 6)),
        Value::Bytes(_) => return Err(json_of_bytes()),
    })
}

fn extract(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_extract", args)?;
    args.documents(|row| {
        let Some(document) = args.document(0, row)? else { return Ok(None) };
        let mut found = Vec::new();
        let mut several = args.len() > 2;
        for at in 1..args.len() {
            let Some(path) = args.path(at, row)? else { return Ok(None) };
            several |= !path.is_plain();
            found.extend(path.find(&document).into_iter().cloned());
        }
        Ok(if several && !found.is_empty() { Some(Doc::Array(found)) } else { found.pop() })
    })
}

fn unquote(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_unquote", args)?;
    args.texts(|row| match args.inputs.first() {
        Some(Input::Json(_)) => Ok(args.document(0, row)?.map(Doc::unquoted)),
        Some(Input::Text(_)) => {
            let Some(text) = args.text(0, row)? else { return Ok(None) };
            if text.len() > 1 && text.starts_with('"') && text.ends_with('"') {
                return Ok(args.document(0, row)?.map(Doc::unquoted));
            }
            Ok(Some(text.into_owned()))
        }
        _ if args.is_null(0, row) => Ok(None),
        _ => Err(wrong_json_type(args.name)),
    })
}

fn quote(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_quote", args)?;
    args.texts(|row| match args.inputs.first() {
        Some(Input::Text(_)) => Ok(args.text(0, row)?.map(|text| {
            let mut out = String::with_capacity(text.len() + 2);
            json::quote(&text, &mut out);
            out
        })),
        _ if args.is_null(0, row) => Ok(None),
        _ => Err(wrong_json_type(args.name)),
    })
}

fn valid(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_valid", args)?;
    args.numbers(|row| {
        let valid = match args.inputs.first() {
            _ if args.is_null(0, row) => return Ok(None),
            Some(Input::Json(_)) => true,
            Some(Input::Text(array)) => json::parse(array.value(row)).is_ok(),
            _ => false,
        };
        Ok(Some(i64::from(valid)))
    })
}

fn type_of(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_type", args)?;
    args.texts(|row| Ok(args.document(0, row)?.map(|document| document.type_name().to_owned())))
}

fn depth(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_depth", args)?;
    args.numbers(|row| Ok(args.document(0, row)?.map(|document| document.depth() as i64)))
}

fn pretty(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_pretty", args)?;
    args.texts(|row| Ok(args.document(0, row)?.map(|document| document.pretty())))
}

/// The value at the path that an argument spells, or the whole document where there is none.
fn at_path(args: &Args<'_>, at: usize, row: usize) -> SqlResult<Option<Doc>> {
    let Some(document) = args.document(0, row)? else { return Ok(None) };
    if at >= args.len() {
        return Ok(Some(document));
    }
    let Some(path) = args.plain_path(at, row)? else { return Ok(None) };
    let found = path.find(&document).first().copied().cloned();
    Ok(found)
}

fn length(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_length", args)?;
    args.numbers(|row| Ok(at_path(&args, 1, row)?.map(|document| document.length() as i64)))
}

fn keys(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_keys", args)?;
    args.documents(|row| {
        Ok(match at_path(&args, 1, row)? {
            Some(Doc::Object(members)) => {
                Some(Doc::Array(members.iter().map(|(name, _)| Doc::String(name.into())).collect()))
            }
            _ => None,
        })
    })
}

fn contains(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_contains", args)?;
    args.numbers(|row| {
        let (Some(document), Some(candidate)) = (at_path(&args, 2, row)?, args.document(1, row)?)
        else {
            return Ok(None);
        };
        Ok(Some(i64::from(json::contains(&document, &candidate))))
    })
}

fn contains_path(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_contains_path", args)?;
    args.numbers(|row| {
        let (Some(document), Some(all)) = (args.document(0, row)?, args.all(1, row)?) else {
            return Ok(None);
        };
        for at in 2..args.len() {
            let Some(path) = args.path(at, row)? else { return Ok(None) };
            let found = !path.find(&document).is_empty();
            if found != all {
                return Ok(Some(i64::from(found)));
            }
        }
        Ok(Some(i64::from(all)))
    })
}

fn overlaps(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_overlaps", args)?;
    args.numbers(|row| {
        let (Some(a), Some(b)) = (args.document(0, row)?, args.document(1, row)?) else {
            return Ok(None);
        };
        Ok(Some(i64::from(json::overlaps(&a, &b))))
    })
}

fn search(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_search", args)?;
    args.documents(|row| {
        let (Some(document), Some(all), Some(pattern)) =
            (args.document(0, row)?, args.all(1, row)?, args.text(2, row)?)
        else {
            return Ok(None);
        };
        let escape = match args.text(3, row)? {
            None => Some('\\'),
            Some(text) if text.chars().count() > 1 => {
                return Err(wrong_arguments("ESCAPE"));
            }
            Some(text) => text.chars().next(),
        };
        let mut parts = Vec::new();
        for at in 4..args.len() {
            let Some(path) = args.path(at, row)? else { return Ok(None) };
            parts.extend(path.find(&document));
        }
        if args.len() <= 4 {
            parts.push(&document);
        }
        let matches = |text: &str| super::regexp::matches(text, &pattern, escape);
        let found = json::search(&document, &parts, all, &matches);
        let mut found: Vec<Doc> = found.into_iter().map(Doc::String).collect();
        Ok(if found.len() > 1 { Some(Doc::Array(found)) } else { found.pop() })
    })
}

/// JSON_VALUE without clauses: a scalar as text; NULL where there is none.
fn value(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_value", args)?;
    args.texts(|row| {
        Ok(match at_path(&args, 1, row)? {
            None | Some(Doc::Null | Doc::Array(_) | Doc::Object(_)) => None,
            Some(scalar) => Some(scalar.unquoted()),
        })
    })
}

fn member_of(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("member of", args)?;
    args.numbers(|row| {
        if args.is_null(0, row) {
            return Ok(None);
        }
        let Some(document) = args.document(1, row)? else { return Ok(None) };
        let value = args.value(0, row)?;
        Ok(Some(i64::from(match &document {
            Doc::Array(items) => items.iter().any(|item| json::same(item, &value)),
            other => json::same(other, &value),
        })))
    })
}

/// The bytes by which a value compares with JSON: in their order, and equal where it is equal.
pub fn key(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("comparison", args)?;
    let key = |row| {
        if args.is_null(0, row) { Ok(None) } else { Ok(Some(json::key(&args.value(0, row)?))) }
    };
    Ok(Arc::new((0..args.rows).map(key).collect::<SqlResult<BinaryArray>>()?))
}

/// Whether a value is JSON of just this text; never NULL.
fn spells(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    if !is_json(args[0].data_type()) {
        return Ok(Arc::new(BooleanArray::from(vec![false; args[0].len()])));
    }
    let (documents, texts) = (args[0].as_string::<i64>(), to_strings(&args[1])?);
    let same = documents.iter().zip(texts.iter()).map(|(a, b)| Some(a.is_some() && a == b));
    Ok(Arc::new(same.collect::<BooleanArray>()))
}
