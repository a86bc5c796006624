//! Addresses of IPv4 and IPv6, as texts, numbers and bytes.
//!
//! What is no address gives NULL, and no error.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use values::error::SqlResult;

use super::convert::{to_bytes, to_i64, to_strings};
use super::{Function, binary, text, truth, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_inet_aton", 1..=1, whole, inet_aton),
    Function::new("mysql_inet_ntoa", 1..=1, text, inet_ntoa),
    Function::new("mysql_inet6_aton", 1..=1, binary, inet6_aton),
    Function::new("mysql_inet6_ntoa", 1..=1, text, inet6_ntoa),
    Function::new("mysql_is_ipv4", 1..=1, truth, |a, _| {
        of_text(a, |text| text.parse::<Ipv4Addr>().is_ok())
    }),
    Function::new("mysql_is_ipv6", 1..=1, truth, |a, _| {
        of_text(a, |text| text.parse::<Ipv6Addr>().is_ok())
    }),
    Function::new("mysql_is_ipv4_compat", 1..=1, truth, |a, _| of_bytes(a, is_compatible)),
    Function::new("mysql_is_ipv4_mapped", 1..=1, truth, |a, _| {
        of_bytes(a, |bytes| bytes[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])
    }),
];

/// A condition of texts, which is never NULL.
fn of_text(args: &[ArrayRef], is: fn(&str) -> bool) -> SqlResult<ArrayRef> {
    let texts = to_strings(&args[0])?;
    let known = texts.iter().map(|text| Some(text.is_some_and(is)));
    Ok(Arc::new(known.collect::<BooleanArray>()))
}

/// A condition of addresses of IPv6, as bytes, which is never NULL.
fn of_bytes(args: &[ArrayRef], is: fn(&[u8; 16]) -> bool) -> SqlResult<ArrayRef> {
    let bytes = to_bytes(&args[0])?;
    let known = bytes.iter().map(|bytes| {
        let address = bytes.and_then(|bytes| <&[u8; 16]>::try_from(bytes).ok());
        Some(address.is_some_and(is))
    });
    Ok(Arc::new(known.collect::<BooleanArray>()))
}

/// Whether all but the last four bytes are zero, and these are more than a small number.
fn is_compatible(bytes: &[u8; 16]) -> bool {
    bytes[..12] == [0; 12] && bytes[12..14] != [0, 0]
}

fn inet6_aton(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let bytes = |text: &str| -> Option<Vec<u8>> {
        match (text.parse::<Ipv4Addr>(), text.parse::<Ipv6Addr>()) {
            (Ok(address), _) => Some(address.octets().to_vec()),
            (_, Ok(address)) => Some(address.octets().to_vec()),
            _ => None,
        }
    };
    let texts = to_strings(&args[0])?;
    let found: Vec<Option<Vec<u8>>> = texts.iter().map(|text| bytes(text?)).collect();
    Ok(Arc::new(found.iter().map(Option::as_deref).collect::<BinaryArray>()))
}

fn inet6_ntoa(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let address = |bytes: &[u8]| {
        if let Ok(four) = <[u8; 4]>::try_from(bytes) {
            return Some(Ipv4Addr::from(four).to_string());
        }
        let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
        if is_compatible(&sixteen) {
            let [.., a, b, c, d] = sixteen;
            return Some(format!("::{a}.{b}.{c}.{d}"));
        }
        Some(Ipv6Addr::from(sixteen).to_string())
    };
    let bytes = to_bytes(&args[0])?;
    Ok(Arc::new(bytes.iter().map(|bytes| address(bytes?)).collect::<StringArray>()))
}

/// INET_ATON also reads shortened addresses: 127.1 is 127.0.0.1.
fn inet_aton(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let number = |text: &str| {
        let parts: Vec<u8> =
            text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let (last, front) = parts.split_last()?;
        if front.len() > 3 {
            return None;
        }
        let shifted = front.iter().zip([24, 16, 8]).map(|(part, by)| i64::from(*part) << by);
        Some(shifted.sum::<i64>() + i64::from(*last))
    };
    let texts = to_strings(&args[0])?;
    Ok(Arc::new(texts.iter().map(|text| number(text?)).collect::<Int64Array>()))
}

fn inet_ntoa(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let address = |n: i64| u32::try_from(n).ok().map(|n| Ipv4Addr::from(n).to_string());
    let numbers = to_i64(&args[0])?;
    Ok(Arc::new(numbers.iter().map(|n| address(n?)).collect::<StringArray>()))
}
