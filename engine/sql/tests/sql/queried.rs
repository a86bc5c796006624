//! Columns that CREATE TABLE … SELECT takes from its query.

use definitions::queried::column;
use types::{Column, ColumnType, Default, IntWidth, Value};
use values::column::ResultColumn;

/// Longest name of a column, in characters.
const LONGEST_NAME: usize = 64;

const INT: ColumnType = ColumnType::Int { width: IntWidth::Int, unsigned: false };

fn computed(name: &str, ty: Option<ColumnType>, nullable: bool) -> ResultColumn {
    ResultColumn::expression(name, ty, nullable)
}

#[test]
fn what_is_computed_has_a_type_that_holds_it() {
    let made = |ty, length| column(&computed("x", ty, true), None, length).unwrap().ty;
    assert_eq!(made(None, None), ColumnType::Varbinary(0));
    assert_eq!(made(Some(ColumnType::Varchar(255)), None), ColumnType::Text(u32::MAX));
    assert_eq!(made(Some(ColumnType::Varchar(255)), Some(3)), ColumnType::Varchar(3));
    assert_eq!(made(Some(ColumnType::Varbinary(255)), Some(3)), ColumnType::Blob(u32::MAX));
    assert_eq!(made(Some(INT), None), INT);
}

#[test]
fn defaults_are_those_of_the_source() {
    let never = computed("x", Some(INT), false);
    let zero = column(&never, None, None).unwrap();
    assert_eq!(zero.default, Some(Default::Constant(Value::Int(0))));
    let mut source = Column { nullable: false, default: None, ..zero };
    assert_eq!(column(&never, Some(&source), None).unwrap().default, None);
    source.default = Some(Default::Constant(Value::Int(7)));
    let kept = column(&never, Some(&source), None).unwrap();
    assert_eq!(kept.default, Some(Default::Constant(Value::Int(7))));
    source.auto_increment = true;
    source.default = None;
    let numbered = column(&never, Some(&source), None).unwrap();
    assert!(!numbered.auto_increment);
    assert_eq!(numbered.default, Some(Default::Constant(Value::Int(0))));
}

#[test]
fn names_must_be_names_of_columns() {
    let long = "x".repeat(LONGEST_NAME + 1);
    for (name, code) in [("", 1166), ("a ", 1166), (long.as_str(), 1059)] {
        let error = column(&computed(name, Some(INT), true), None, None).unwrap_err();
        assert_eq!(error.code, code, "{name}");
    }
}
