//! Documents, paths and changes: by examples, and by random texts beside serde_json, which says
//! what is JSON and what it means.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::*;

fn doc(text: &str) -> Doc {
    parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap_or_else(|bad| panic!("{text}: {bad:?}"))
}

#[test]
fn a_document_has_one_text() {
    for (text, expected) in [
        (r#" {"b":1,"a":2, "aa":3,"a":4} "#, r#"{"a": 4, "b": 1, "aa": 3}"#),
        (
            r#"[1,-0,1.0,1e2,-1.5E-7,1e20,18446744073709551615]"#,
            "[1, 0, 1.0, 100.0, -0.00000015, 1e20, 18446744073709551615]",
        ),
        (
            r#"["\u00e9\ud83d\ude00\/\n\u0001",true,false,null]"#,
            "[\"é😀/\\n\\u0001\", true, false, null]",
        ),
        ("123456789012345678901234567890", "1.2345678901234568e29"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("{}", "{}"),
        ("[ ]", "[]"),
    ] {
        assert_eq!(normal(text).as_deref(), Ok(expected), "{text}");
        assert_eq!(normal(expected).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_no_json_is_reported_with_its_position() {
    for (text, what, at) in [
        ("", "The document is empty.", 0),
        ("abc", "Invalid value.", 0),
        ("[1 2]", "Missing a comma or ']' after an array element.", 3),
        (r#"{"a" 1}"#, "Missing a colon after a name of object member.", 5),
        (r#"{"a":1 "b":2}"#, "Missing a comma or '}' after an object member.", 7),
        ("{1:2}", "Missing a name for object member.", 1),
        ("[1,]", "Invalid value.", 3),
        ("1 2", "The document root must not be followed by other values.", 2),
        ("01", "The document root must not be followed by other values.", 1),
        ("\"a", "Missing a closing quotation mark in string.", 2),
        ("\"\\x\"", "Invalid escape character in string.", 2),
        ("\"\\ud800\"", "The surrogate pair in string is invalid.", 7),
        ("\"\u{1}\"", "Invalid encoding in string.", 1),
        ("1.", "Miss fraction part in number.", 2),
        ("1e", "Miss exponent in number.", 2),
        ("[1e999]", "Number too big to be stored in double.", 1),
    ] {
        assert_eq!(parse(text), Err(Fault::Text(what, at)), "{text}");
    }
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(doc(&nested(DEEPEST)).depth(), DEEPEST);
    assert_eq!(parse(&nested(DEEPEST + 1)), Err(Fault::TooDeep));
    assert_eq!(parse(&"[".repeat(1_000_000)), Err(Fault::TooDeep));
}

#[test]
fn paths_lead_where_mysql_says() {
    let document =
        doc(r#"{"a": [3, {"c": 1}, [9, 8]], "b": {"c": 2, "x y": 5}, "é": null, "$_1": 7}"#);
    let found = |text: &str| {
        let found = path(text).find(&document).into_iter().map(Doc::text).collect::<Vec<_>>();
        found.join(" ")
    };
    for (text, expected) in [
        ("$.a[0]", "3"),
        (" $ . a [ 1 ] . c ", "1"),
        ("$.b.\"x y\"", "5"),
        ("$.b.\"\\u0063\"", "2"),
        ("$.é", "null"),
        ("$.$_1", "7"),
        ("$.a[last]", "[9, 8]"),
        ("$.a[last - 2]", "3"),
        ("$.a[last-3]", ""),
        ("$.a[3]", ""),
        ("$.b[0].c", "2"),
        ("$.b[last].c", "2"),
        ("$.b[1].c", ""),
        ("$[0].b[last][0].c", "2"),
        ("$.a[*]", "3 {\"c\": 1} [9, 8]"),
        ("$.b[*]", ""),
        ("$.*[1]", "{\"c\": 1}"),
        ("$.a[0 to 1]", "3 {\"c\": 1}"),
        ("$.a[last-1 to last]", "{\"c\": 1} [9, 8]"),
        ("$.a[1 to 9]", "{\"c\": 1} [9, 8]"),
        ("$.a[5 to 9]", ""),
        ("$.b[0 to 3].c", "2"),
        ("$**.c", "1 2"),
        ("$.a**[0]", "3 {\"c\": 1} 1 9 8"),
        ("$.x", ""),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
    for (text, at) in [
        ("", 0),
        ("a", 1),
        ("$.", 2),
        ("$a", 1),
        ("$[", 2),
        ("$[a]", 2),
        ("$[-1]", 2),
        ("$[1", 3),
        ("$**", 3),
        ("$***.a", 3),
        ("$.1a", 2),
        ("$.é.", 4),
        ("$[2 to 1]", 8),
        ("$[last-1 to last-2]", 18),
        ("$[99999999999]", 2),
        ("$.\"a", 2),
        ("$[last+1]", 6),
    ] {
        assert_eq!(Path::parse(text), Err(BadPath(at)), "{text}");
    }
    assert!(!path("$**.a").is_plain() && !path("$.a[0 to 1]").is_plain() && path("$.a").is_plain());
}

#[test]
fn many_ellipses_cost_no_more_than_one_value_each() {
    let deep = doc(&format!("{}{}", r#"{"a": [1, "#.repeat(40), "0".to_owned() + &"]}".repeat(40)));
    assert_eq!(path(&format!("${}", "**.a".repeat(21))).find(&deep).len(), 20);
}

#[test]
fn changes_are_mysqls() {
    let changed = |document: &str, at: &str, change: fn(&mut Doc, &Path)| {
        let mut document = doc(document);
        change(&mut document, &path(at));
        document.text()
    };
    let set: fn(&mut Doc, &Path) = |d, p| put(d, p, Doc::Int(9), Mode::Set);
    let insert: fn(&mut Doc, &Path) = |d, p| put(d, p, Doc::Int(9), Mode::Insert);
    let replace: fn(&mut Doc, &Path) = |d, p| put(d, p, Doc::Int(9), Mode::Replace);
    let push: fn(&mut Doc, &Path) = |d, p| append(d, p, Doc::Int(9));
    let cell: fn(&mut Doc, &Path) = |d, p| insert_cell(d, p, Doc::Int(9));
    let take: fn(&mut Doc, &Path) = remove;
    for (change, document, at, expected) in [
        (set, r#"{"a": 1}"#, "$.a", r#"{"a": 9}"#),
        (set, r#"{"a": 1}"#, "$.b", r#"{"a": 1, "b": 9}"#),
        (set, r#"{"a": 1}"#, "$.b.c", r#"{"a": 1}"#),
        (set, r#"{"a": 1}"#, "$", "9"),
        (set, "[1, 2]", "$[5]", "[1, 2, 9]"),
        (set, "[1, 2]", "$[last-5]", "[9, 1, 2]"),
        (set, "1", "$[0]", "9"),
        (set, "1", "$[3]", "[1, 9]"),
        (set, "1", "$[last-1]", "[9, 1]"),
        (set, "1", "$.a", "1"),
        (insert, r#"{"a": 1}"#, "$.a", r#"{"a": 1}"#),
        (insert, r#"{"a": [1]}"#, "$.a[1]", r#"{"a": [1, 9]}"#),
        (replace, r#"{"a": 1}"#, "$.b", r#"{"a": 1}"#),
        (replace, r#"{"a": [1]}"#, "$.a[0]", r#"{"a": [9]}"#),
        (push, "[1, [2]]", "$[1]", "[1, [2, 9]]"),
        (push, "[1, [2]]", "$[0]", "[[1, 9], [2]]"),
        (push, "[1]", "$[3]", "[1]"),
        (push, r#"{"a": 1}"#, "$", r#"[{"a": 1}, 9]"#),
        (cell, "[1, 2]", "$[0]", "[9, 1, 2]"),
        (cell, "[1, 2]", "$[7]", "[1, 2, 9]"),
        (cell, "[1, 2]", "$[last]", "[1, 9, 2]"),
        (cell, r#"{"a": 1}"#, "$.a[0]", r#"{"a": 1}"#),
        (take, "[1, 2, 3]", "$[1]", "[1, 3]"),
        (take, "[1, 2, 3]", "$[last]", "[1, 2]"),
        (take, r#"{"a": {"b": 1}}"#, "$.a.b", r#"{"a": {}}"#),
        (take, r#"{"a": 1}"#, "$.b", r#"{"a": 1}"#),
    ] {
        assert_eq!(changed(document, at, change), expected, "{document} {at}");
    }
}

#[test]
fn merges_are_mysqls() {
    for (a, b, patched, preserved) in [
        ("[1, 2]", "[true]", "[true]", "[1, 2, true]"),
        ("1", "true", "true", "[1, true]"),
        (r#"{"a": 1}"#, r#"{"b": 2}"#, r#"{"a": 1, "b": 2}"#, r#"{"a": 1, "b": 2}"#),
        (
            r#"{"a": 1, "b": {"x": 1}}"#,
            r#"{"a": null, "b": {"x": 2, "y": null}, "c": {"z": null}}"#,
            r#"{"b": {"x": 2}, "c": {}}"#,
            r#"{"a": [1, null], "b": {"x": [1, 2], "y": null}, "c": {"z": null}}"#,
        ),
        ("[1]", r#"{"a": 1}"#, r#"{"a": 1}"#, r#"[1, {"a": 1}]"#),
    ] {
        assert_eq!(merge_patch(doc(a), doc(b)).text(), patched, "{a} {b}");
        assert_eq!(merge_preserve(doc(a), doc(b)).text(), preserved, "{a} {b}");
    }
}

#[test]
fn values_are_found_in_one_another() {
    for (a, b, holds, shares) in [
        ("[1, [2, 3]]", "[1]", true, true),
        ("[1, [2, 3]]", "[3, 1]", true, true),
        ("[1, [2, 3]]", "[[3]]", true, false),
        ("[1, 2]", "1.0", true, true),
        (r#"{"a": 1, "b": [1, 2]}"#, r#"{"b": [2]}"#, true, false),
        (r#"{"a": 1, "b": [1, 2]}"#, r#"{"a": 1, "c": 2}"#, false, true),
        (r#"[{"a": 1}, 2]"#, r#"{"a": 1}"#, true, true),
        ("1", "[1]", false, true),
        ("\"1\"", "1", false, false),
    ] {
        assert_eq!(contains(&doc(a), &doc(b)), holds, "{a} {b}");
        assert_eq!(overlaps(&doc(a), &doc(b)), shares, "{a} {b}");
    }
    let document = doc(r#"{"a": ["abc", {"x y": "abd"}], "b": "b", "c": ["abc"]}"#);
    let starts = |text: &str| text.starts_with("ab");
    let found = |parts: &str, all| search(&document, &path(parts).find(&document), all, &starts);
    assert_eq!(found("$", true), ["$.a[0]", "$.a[1].\"x y\"", "$.c[0]"]);
    assert_eq!(found("$", false), ["$.a[0]"]);
    assert_eq!(found("$.c", true), ["$.c[0]"]);
    assert_eq!(found("$.*[0]", true), ["$.a[0]", "$.c[0]"]);
    assert!(found("$.x", true).is_empty());
}

#[test]
fn keys_sort_as_documents_do() {
    let ordered = [
        "null",
        "-1e300",
        "-9223372036854775808",
        "-1.5",
        "-1",
        "0",
        "1e-300",
        "0.1",
        "1",
        "1.5",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "1e300",
        "\"\"",
        "\"a\"",
        "\"a\\u0000\"",
        "\"ab\"",
        "\"b\"",
        "{}",
        r#"{"a": 1}"#,
        r#"{"a": 2}"#,
        r#"{"b": 0}"#,
        r#"{"a": 1, "b": 1}"#,
        "[]",
        "[null]",
        "[1]",
        "[1, 1]",
        "[2]",
        "[[]]",
        "false",
        "true",
    ];
    for (at, a) in ordered.iter().enumerate() {
        for (other, b) in ordered.iter().enumerate() {
            assert_eq!(key(&doc(a)).cmp(&key(&doc(b))), at.cmp(&other), "{a} {b}");
        }
    }
    for (a, b) in [("1", "1.0"), ("0", "-0.0"), ("[1, {\"a\": 2.0}]", "[1.0, {\"a\": 2}]")] {
        assert!(same(&doc(a), &doc(b)), "{a} {b}");
        assert_ne!(doc(a).text(), doc(b).text());
    }
}

/// A random document, and texts that are nearly one.
fn random_text(random: &mut SmallRng) -> String {
    const PARTS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\"a\"",
        "\"b\":",
        "1",
        "-0",
        "1.5",
        "1e3",
        "2E-400",
        "true",
        "null",
        " ",
        "\\",
        "\\u00e9",
        "\\ud83d\\ude00",
        "é",
        "\u{1}",
        "18446744073709551616",
        "0.1234567890123456789",
    ];
    let mut text = String::new();
    write_random(random, 0, &mut text);
    for _ in 0..random.random_range(0..3) {
        let at = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
        let at = at.choose(random).copied().unwrap_or(0);
        match random.random_range(0..3) {
            0 => text.insert_str(at, PARTS.choose(random).unwrap()),
            1 => text.truncate(at),
            _ => _ = (at < text.len()).then(|| text.remove(at)),
        }
    }
    text
}

fn write_random(random: &mut SmallRng, level: usize, out: &mut String) {
    let kinds = if level > 4 { 6 } else { 8 };
    match random.random_range(0..kinds) {
        0 => out.push_str("null"),
        1 => out.push_str("true"),
        2 => out.push_str(&random.random::<i64>().to_string()),
        3 => out.push_str(&random.random::<u64>().to_string()),
        4 => {
            let n = f64::from_bits(random.random());
            out.push_str(&if n.is_finite() { format!("{n:e}") } else { "0.5".into() });
        }
        5 => {
            let length = random.random_range(0..5);
            let text: String = (0..length).map(|_| random.random_range('\0'..='ÿ')).collect();
            quote(&text, out);
        }
        6 => {
            out.push('[');
            for at in 0..random.random_range(0..4) {
                out.push_str(if at == 0 { "" } else { " ," });
                write_random(random, level + 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for at in 0..random.random_range(0..4) {
                out.push_str(if at == 0 { "" } else { ", " });
                quote(["a", "b", "aa", "é", ""].choose(random).unwrap(), out);
                out.push(':');
                write_random(random, level + 1, out);
            }
            out.push('}');
        }
    }
}

/// Whether a document is what serde_json read; doubles to the last digit but one.
fn agrees(document: &Doc, value: &Value) -> bool {
    match (document, value) {
        (Doc::Null, Value::Null) => true,
        (Doc::Bool(a), Value::Bool(b)) => a == b,
        (Doc::Int(0), Value::Number(b)) => b.as_f64() == Some(0.0),
        (Doc::Int(a), Value::Number(b)) => b.as_i64() == Some(*a),
        (Doc::UInt(a), Value::Number(b)) => b.as_u64() == Some(*a),
        (Doc::Double(a), Value::Number(b)) => {
            let b = b.as_f64().unwrap();
            !a.is_nan() && ((a - b).abs() <= a.abs() * 1e-15 || (a - b).abs() < 1e-300)
        }
        (Doc::String(a), Value::String(b)) => a == b,
        (Doc::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agrees(a, b))
        }
        (Doc::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| agrees(a, &b[name]))
        }
        _ => false,
    }
}

#[test]
fn random_texts_are_read_as_serde_json_reads_them() {
    let mut random = SmallRng::seed_from_u64(20_261_122);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..30_000 {
        let text = random_text(&mut random);
        let value: Result<Value, _> = serde_json::from_str(&text);
        match (parse(&text), value) {
            (Ok(document), Ok(value)) => {
                good += 1;
                assert!(agrees(&document, &value), "{text}");
                let normal = document.text();
                assert_eq!(doc(&normal), document, "{text}");
                assert_eq!(doc(&normal).text(), normal, "{text}");
                assert!(agrees(&doc(&document.pretty()), &value), "{text}");
            }
            (Err(_), Err(_)) => bad += 1,
            // A number that is no double, which serde_json may round to the largest one.
            (Err(Fault::Text("Number too big to be stored in double.", _)), _) => {}
            (ours, theirs) => panic!("{text:?}: {ours:?}, and serde_json: {theirs:?}"),
        }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} {bad}");
}

#[test]
fn no_bytes_make_the_readers_panic() {
    const REAL: &[&str] = &[
        "$.a[0 to last - 1].\"b c\"**[last]\n{\"a\": [1, {\"b c\": [true, -2.5e3]}], \"é\": null}",
        "$[last-3]\n[1, [2, [3]], \"\\ud83d\\ude00\"]",
        "$**.*[*]\n{\"a\": {\"b\": [0, 18446744073709551615]}}",
    ];
    let mut random = SmallRng::seed_from_u64(7);
    REAL.iter().for_each(|text| fuzz_json(text.as_bytes()));
    for _ in 0..50_000 {
        let mut bytes = REAL.choose(&mut random).unwrap().as_bytes().to_vec();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..4) {
                0 => bytes[at] = random.random(),
                1 => bytes[at] = *br#"$.[]*"{},:0a \"#.choose(&mut random).unwrap(),
                2 => bytes.truncate(at.max(1)),
                _ => bytes.extend_from_within(at..),
            }
        }
        fuzz_json(&bytes);
    }
}
