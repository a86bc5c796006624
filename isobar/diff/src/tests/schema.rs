//! Which tables can be compared, and by which rules.

use super::*;

fn column(name: &str, class: Class) -> Column {
    let type_name = class.name().to_owned();
    Column { name: name.into(), class, type_name, nullable: false, collation: None, is_cast: false }
}

fn table(name: &str, columns: &[(&str, Class)], key: &[&str]) -> Table {
    Table {
        name: name.into(),
        columns: columns.iter().map(|(name, class)| column(name, *class)).collect(),
        key: key.iter().map(|name| (*name).to_owned()).collect(),
    }
}

const TEXT: Class = Class::Text { padded: false };

#[test]
fn columns_are_matched_by_name_and_kind() {
    let source =
        table("a", &[("id", Class::Int), ("Money", Class::Decimal(2)), ("c", TEXT)], &["id"]);
    let target = table(
        "b",
        &[("c", Class::Text { padded: true }), ("MONEY", Class::Decimal(4)), ("id", Class::Int)],
        &[],
    );
    let planned = plan(&source, &target, &Wishes::default()).unwrap();
    let rules = planned.rules();
    assert_eq!(planned.key, [0]);
    assert!(rules[1].trim_zeros && rules[1].class == Class::Decimal(4) && rules[2].trim_spaces);
    assert_eq!(planned.columns[1].target.name, "MONEY");
    assert_eq!(planned.notes.len(), 1);
    let key = planned.key_of(&[Some("7".into()), None, None]).unwrap();
    assert_eq!(key, [crate::range::Part::Int(7)]);
    assert!(
        planned.key_of(&[None, None, None]).is_none()
            && planned.key_of(&[Some("x".into())]).is_none()
    );
}

#[test]
fn what_cannot_be_compared_is_named() {
    let source = table("a", &[("id", Class::Int), ("v", TEXT)], &["id"]);
    let refused =
        |target: Table, wishes: Wishes| plan(&source, &target, &wishes).unwrap_err().to_string();
    let words = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let text = refused(table("b", &[("id", Class::Int)], &["id"]), Wishes::default());
    assert!(text.contains("b lacks v") && text.contains("--ignore-columns"), "{text}");
    let text =
        refused(table("b", &[("id", Class::Int), ("v", Class::Float)], &["id"]), Wishes::default());
    assert!(text.contains("column v") && text.contains("no common meaning"), "{text}");
    let text = refused(table("b", &[("id", Class::Int), ("v", TEXT)], &["v"]), Wishes::default());
    assert!(text.contains("primary keys differ") && text.contains("--key"), "{text}");
    let same = || table("b", &[("id", Class::Int), ("v", TEXT)], &["id"]);
    let text = refused(same(), Wishes { key: words(&["idd"]), ..Wishes::default() });
    assert!(text.contains("idd"), "{text}");
    let text = refused(same(), Wishes { ignore: words(&["id"]), ..Wishes::default() });
    assert!(text.contains("key column id is ignored"), "{text}");
    let keyless = table("k", &[("id", Class::Int), ("v", TEXT)], &[]);
    let text = plan(&keyless, &keyless, &Wishes::default()).unwrap_err().to_string();
    assert!(text.contains("--key"), "{text}");
    assert!(plan(&keyless, &keyless, &Wishes { key: words(&["ID"]), ..Wishes::default() }).is_ok());
}

#[test]
fn untyped_text_takes_the_other_sides_kind() {
    let csv = table("f", &[("id", Class::Unknown), ("d", Class::Unknown)], &[]);
    let server = table("t", &[("id", Class::Int), ("d", Class::Decimal(2))], &["id"]);
    let planned = plan(&csv, &server, &Wishes::default()).unwrap();
    assert_eq!(planned.rules(), [Rule::exact(Class::Int), Rule::exact(Class::Decimal(2))]);
}

#[test]
fn keys_are_compared_as_they_are() {
    let wishes = Wishes {
        ignore_case: true,
        ignore_trailing_spaces: true,
        float_digits: Some(6),
        ..Wishes::default()
    };
    let one = table("t", &[("id", TEXT), ("v", TEXT), ("x", Class::Float)], &["id"]);
    let rules = plan(&one, &one, &wishes).unwrap().rules();
    assert!(!rules[0].fold_case && !rules[0].trim_spaces);
    assert!(rules[1].fold_case && rules[1].trim_spaces && rules[2].float_digits == Some(6));
}
