//! JSON functions that make documents: from values, from other documents, and from groups of rows.
//!
//! A path that may lead to several values is refused here; nothing is ever written to more than one
//! place.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::DataType;
use values::error::{
    SqlResult, json_name_null, json_path_to_no_cell, json_path_to_root, json_too_deep,
};
use values::json::{self, Doc, Mode, Object, Path};

use super::json::{Args, document};
use super::kinds::is_json;
use super::{Function, text};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("cast_json", 1..=1, document, cast_json),
    Function::new("json_object", 2..=999, document, json_object),
    Function::new("json_array", 1..=999, document, json_array),
    Function::new("json_set", 3..=999, document, |a, _| written("json_set", a, Mode::Set)),
    Function::new("json_insert", 3..=999, document, |a, _| written("json_insert", a, Mode::Insert)),
    Function::new("json_replace", 3..=999, document, |a, _| {
        written("json_replace", a, Mode::Replace)
    }),
    Function::new("json_remove", 2..=999, document, removed),
    Function::new("json_array_append", 3..=999, document, |a, _| {
        changed("json_array_append", a, |document, path, value| {
            json::append(document, path, value);
            Ok(())
        })
    }),
    Function::new("json_array_insert", 3..=999, document, |a, _| {
        changed("json_array_insert", a, inserted)
    }),
    Function::new("json_merge_patch", 2..=999, document, merged_patch),
    Function::new("json_merge_preserve", 2..=999, document, merged_preserve),
    // The parts of JSON_ARRAYAGG and JSON_OBJECTAGG around an aggregate of texts.
    Function::new("mysql_json_item", 1..=1, text, item),
    Function::new("mysql_json_member", 2..=2, text, member),
    Function::new("mysql_json_items", 1..=1, document, |a, _| collected(a, '[', ']')),
    Function::new("mysql_json_members", 1..=1, document, |a, _| collected(a, '{', '}')),
];

/// CAST(… AS JSON): a text is read, any other value becomes what it is in JSON.
fn cast_json(arrays: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("cast_as_json", arrays)?;
    let [array] = arrays else { return args.documents(|_| Ok(None)) };
    if is_json(array.data_type()) {
        return Ok(array.clone());
    }
    let is_text = array.as_string_opt::<i32>().is_some();
    args.documents(|row| match is_text {
        true => args.document(0, row),
        false if args.is_null(0, row) => Ok(None),
        false => args.value(0, row).map(Some),
    })
}

/// The name of a member.
fn name(args: &Args<'_>, at: usize, row: usize) -> SqlResult<String> {
    match args.text(at, row)? {
        Some(name) => Ok(name.into_owned()),
        None => Err(json_name_null()),
    }
}

fn json_object(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_object", args)?;
    args.documents(|row| {
        let members = (0..args.len() / 2)
            .map(|pair| Ok((name(&args, pair * 2, row)?, args.value(pair * 2 + 1, row)?)));
        Ok(Some(Doc::Object(Object::new(members.collect::<SqlResult<_>>()?))))
    })
}

fn json_array(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_array", args)?;
    args.documents(|row| {
        let items = (0..args.len()).map(|at| args.value(at, row));
        Ok(Some(Doc::Array(items.collect::<SqlResult<_>>()?)))
    })
}

/// A document changed at each of some paths by a value, from left to right.
fn changed(
    name: &'static str,
    args: &[ArrayRef],
    change: impl Fn(&mut Doc, &Path, Doc) -> SqlResult<()>,
) -> SqlResult<ArrayRef> {
    let args = Args::new(name, args)?;
    args.documents(|row| {
        let Some(mut document) = args.document(0, row)? else { return Ok(None) };
        for at in (1..args.len()).step_by(2) {
            let Some(path) = args.plain_path(at, row)? else { return Ok(None) };
            change(&mut document, &path, args.value(at + 1, row)?)?;
        }
        Ok(Some(document))
    })
}

fn written(name: &'static str, args: &[ArrayRef], mode: Mode) -> SqlResult<ArrayRef> {
    changed(name, args, |document, path, value| {
        json::put(document, path, value, mode);
        Ok(())
    })
}

fn inserted(document: &mut Doc, path: &Path, value: Doc) -> SqlResult<()> {
    if !path.ends_in_cell() {
        return Err(json_path_to_no_cell());
    }
    json::insert_cell(document, path, value);
    Ok(())
}

fn removed(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_remove", args)?;
    args.documents(|row| {
        let Some(mut document) = args.document(0, row)? else { return Ok(None) };
        for at in 1..args.len() {
            let Some(path) = args.plain_path(at, row)? else { return Ok(None) };
            if path.is_root() {
                return Err(json_path_to_root());
            }
            json::remove(&mut document, &path);
        }
        Ok(Some(document))
    })
}

/// NULL as a patch makes the result NULL, until a patch that is no object takes its place.
fn merged_patch(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_merge_patch", args)?;
    args.documents(|row| {
        let mut merged = args.document(0, row)?;
        for at in 1..args.len() {
            merged = match (merged, args.document(at, row)?) {
                (_, None) | (None, Some(Doc::Object(_))) => None,
                (None, patch) => patch,
                (Some(document), Some(patch)) => Some(json::merge_patch(document, patch)),
            };
        }
        Ok(merged)
    })
}

fn merged_preserve(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_merge_preserve", args)?;
    args.documents(|row| {
        let Some(mut merged) = args.document(0, row)? else { return Ok(None) };
        for at in 1..args.len() {
            let Some(other) = args.document(at, row)? else { return Ok(None) };
            merged = json::merge_preserve(merged, other);
        }
        Ok(Some(merged))
    })
}

fn item(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_arrayagg", args)?;
    args.texts(|row| Ok(Some(args.value(0, row)?.text())))
}

fn member(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let args = Args::new("json_objectagg", args)?;
    args.texts(|row| {
        let mut out = String::new();
        json::quote(&name(&args, 0, row)?, &mut out);
        out.push(':');
        out.push_str(&args.value(1, row)?.text());
        Ok(Some(out))
    })
}

/// Items or members that an aggregate has put together, as one document.
fn collected(args: &[ArrayRef], open: char, close: char) -> SqlResult<ArrayRef> {
    let args = Args::new("json_arrayagg", args)?;
    args.documents(|row| {
        let Some(parts) = args.text(0, row)? else { return Ok(None) };
        match json::parse(&format!("{open}{parts}{close}")) {
            Ok(document) => Ok(Some(document)),
            Err(_) => Err(json_too_deep()),
        }
    })
}
