//! MySQL's functions and casts by name: which of ours each one is.
//!
//! A name that is not listed here does not exist (error 1305), whatever DataFusion may know.

use functions::cast::STATED_CHAR;
use functions::random;
use sqlparser::ast::{
    BinaryOperator, CeilFloorKind, DataType, DateTimeField, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, TrimWhereField, WindowType,
};
use syntax::names::parts;
use syntax::tree::{call, null, number, plain, string};
use values::calendar::Compound;
use values::error::{
    SqlResult, no_function, no_window, syntax, unsupported, wrong_argument_count,
    wrong_time_literal,
};
use values::temporal::{
    Unit, format_datetime, fraction_digits, parse_datetime, parse_instant, parse_time,
    says_time_of_day,
};

use crate::QueryContext;
use crate::aggregates::{AGGREGATES, aggregate, count_of_rows};
use crate::forms::number_of_hex;
use crate::scalars::{NATIVE, SCALARS};

/// MySQL's function, and ours, which has one argument more.
const REPLACE: &str = "regexp_replace";

/// The function's name and its plain arguments.
fn name_and_args(function: &Function) -> Option<(String, Vec<&Expr>)> {
    let names = parts(&function.name);
    let [name] = &names[..] else { return None };
    let FunctionArguments::List(list) = &function.args else {
        return Some((name.clone(), Vec::new()));
    };
    let args = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    Some((name.clone(), args.collect::<Option<Vec<_>>>()?))
}

/// Forms whose parts would be misread on their own: intervals, and units that look like columns.
pub fn before(expr: &mut Expr) -> SqlResult<()> {
    let replacement = match &*expr {
        Expr::BinaryOp { left, op, right } => match (&**left, op, &**right) {
            (date, BinaryOperator::Plus, Expr::Interval(interval)) => shift(date, interval, false)?,
            (date, BinaryOperator::Minus, Expr::Interval(interval)) => shift(date, interval, true)?,
            (Expr::Interval(interval), BinaryOperator::Plus, date) => shift(date, interval, false)?,
            _ => return Ok(()),
        },
        Expr::Function(function) => match name_and_args(function) {
            Some((name, args)) => match (name.as_str(), &args[..]) {
                ("date_add" | "adddate", [date, Expr::Interval(interval)]) => {
                    shift(date, interval, false)?
                }
                ("date_sub" | "subdate", [date, Expr::Interval(interval)]) => {
                    shift(date, interval, true)?
                }
                ("get_format", [Expr::Identifier(kind), place]) => {
                    call("mysql_get_format", vec![string(&*kind.value), (*place).clone()])
                }
                ("timestampadd", [Expr::Identifier(unit), n, date]) => call(
                    "mysql_date_shift",
                    vec![(*date).clone(), (*n).clone(), string(known_unit(&unit.value)?)],
                ),
                ("timestampdiff", [Expr::Identifier(unit), from, to]) => call(
                    "mysql_timestampdiff",
                    vec![string(known_unit(&unit.value)?), (*from).clone(), (*to).clone()],
                ),
                _ => return Ok(()),
            },
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    *expr = replacement;
    Ok(())
}

fn known_unit(name: &str) -> SqlResult<String> {
    let name = name.to_uppercase();
    let name = name.strip_prefix("SQL_TSI_").unwrap_or(&name).to_owned();
    match Unit::parse(&name) {
        Some(_) => Ok(name),
        None => Err(unsupported(format!("INTERVAL … {name}"))),
    }
}

fn shift(date: &Expr, interval: &sqlparser::ast::Interval, back: bool) -> SqlResult<Expr> {
    let unit = interval.leading_field.as_ref().map(DateTimeField::to_string).unwrap_or_default();
    let unit = unit.to_uppercase();
    if interval.last_field.is_some() {
        return Err(unsupported(format!("INTERVAL … {unit} TO …")));
    }
    let count = (*interval.value).clone();
    if Compound::parse(&unit).is_some() {
        let unit = format!("{}{unit}", if back { "-" } else { "" });
        return Ok(call("mysql_date_shift", vec![date.clone(), count, string(unit)]));
    }
    let count = if back { call("mysql_neg", vec![count]) } else { count };
    Ok(call("mysql_date_shift", vec![date.clone(), count, string(known_unit(&unit)?)]))
}

/// Every other form that is a function in disguise.
pub fn rewritten(expr: Expr, context: &QueryContext) -> SqlResult<Expr> {
    Ok(match expr {
        Expr::Function(function) => function_call(function, context)?,
        Expr::Cast { expr, data_type, array: false, .. } => cast(*expr, &data_type)?,
        Expr::Cast { array: true, .. } => return Err(unsupported("CAST(… AS … ARRAY)")),
        Expr::Convert { expr, data_type: Some(data_type), .. } => cast(*expr, &data_type)?,
        Expr::Convert { expr, charset: Some(_), .. } => {
            let of_char = matches!(&*expr, Expr::Function(function)
                if parts(&function.name) == ["mysql_char"]);
            call(if of_char { "mysql_char_text" } else { STATED_CHAR }, vec![*expr])
        }
        Expr::TypedString(typed) => {
            let text = typed.value.into_string().unwrap_or_default();
            time_literal(text, &typed.data_type, context)?
        }
        Expr::Extract { field, expr, .. } => {
            call("mysql_extract", vec![string(field.to_string()), *expr])
        }
        Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
            call("mysql_ceil", vec![*expr])
        }
        Expr::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
            call("mysql_floor", vec![*expr])
        }
        Expr::Position { expr, r#in } => call("mysql_locate", vec![*expr, *r#in]),
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            let from = substring_from.ok_or_else(|| syntax("SUBSTRING of one argument"))?;
            let mut args = vec![*expr, *from];
            args.extend(substring_for.map(|e| *e));
            call("mysql_substring", args)
        }
        Expr::Trim { trim_where, trim_what, expr, trim_characters: None } => {
            let name = match trim_where {
                Some(TrimWhereField::Leading) => "mysql_ltrim",
                Some(TrimWhereField::Trailing) => "mysql_rtrim",
                _ => "mysql_trim",
            };
            let mut args = vec![*expr];
            args.extend(trim_what.map(|e| *e));
            call(name, args)
        }
        other => other,
    })
}

/// `DATE '…'`, `TIME '…'`, `TIMESTAMP '…'`: with as many digits of a fraction as it has, and error
/// 1525 where it is none. One with an offset from UTC is what the session's clocks show then.
fn time_literal(text: String, ty: &DataType, context: &QueryContext) -> SqlResult<Expr> {
    let text = match (ty, parse_instant(&text)) {
        (DataType::Datetime(_) | DataType::Timestamp(..), Some(us)) => {
            let digits =
                fraction_digits(text.trim().rsplit_once(['+', '-']).map_or("", |(wall, _)| wall));
            format_datetime(context.zone()?.to_local(us), digits)
        }
        _ => text,
    };
    let wrong = |kind: &str| wrong_time_literal(kind, &text);
    let digits = Some(u64::from(fraction_digits(&text)));
    let (read, says_time) = (parse_datetime(&text), says_time_of_day(&text));
    let ty = match ty {
        DataType::Date if read.is_none() || says_time => return Err(wrong("DATE")),
        DataType::Datetime(_) | DataType::Timestamp(..) if read.is_none() || !says_time => {
            return Err(wrong("DATETIME"));
        }
        DataType::Time(..) if parse_time(&text).is_none() => return Err(wrong("TIME")),
        DataType::Datetime(None) => DataType::Datetime(digits),
        DataType::Timestamp(None, zone) => DataType::Timestamp(digits, *zone),
        DataType::Time(None, zone) => DataType::Time(digits, *zone),
        ty => ty.clone(),
    };
    cast(string(text), &ty)
}

fn cast(expr: Expr, ty: &DataType) -> SqlResult<Expr> {
    // All of these ask for a number.
    let one = |name: &str, expr: Expr| Ok(call(name, vec![number_of_hex(expr)]));
    match ty {
        DataType::Signed
        | DataType::SignedInteger
        | DataType::BigInt(_)
        | DataType::Int(_)
        | DataType::Integer(_) => one("cast_signed", expr),
        DataType::Unsigned | DataType::UnsignedInteger | DataType::BigIntUnsigned(_) => {
            one("cast_unsigned", expr)
        }
        DataType::Double(_) | DataType::Real | DataType::Float(_) | DataType::DoublePrecision => {
            one("cast_double", expr)
        }
        DataType::Date => Ok(call("cast_date", vec![expr])),
        DataType::Datetime(digits) | DataType::Timestamp(digits, _) => {
            Ok(call("cast_datetime", vec![expr, number(digits.unwrap_or(0))]))
        }
        DataType::Time(digits, _) => Ok(call("cast_time", vec![expr, number(digits.unwrap_or(0))])),
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => {
            let (precision, scale) = syntax::decimal::digits(*info, &expr.to_string())?;
            let expr = number_of_hex(expr);
            Ok(call("cast_decimal", vec![expr, number(precision), number(scale)]))
        }
        DataType::Char(length) | DataType::Varchar(length) | DataType::Nvarchar(length) => {
            let mut args = vec![expr];
            if let Some(sqlparser::ast::CharacterLength::IntegerLength { length, .. }) = length {
                args.push(number(length));
            }
            Ok(call(STATED_CHAR, args))
        }
        DataType::Text => Ok(call(STATED_CHAR, vec![expr])),
        DataType::JSON => Ok(call("cast_json", vec![expr])),
        DataType::Binary(length) => {
            let mut args = vec![expr];
            args.extend(length.map(number));
            Ok(call("cast_binary", args))
        }
        other => Err(unsupported(format!("CAST(… AS {other})"))),
    }
}

fn function_call(mut function: Function, context: &QueryContext) -> SqlResult<Expr> {
    let names = parts(&function.name);
    let [name] = &names[..] else { return Err(no_function(names.join("."))) };
    let name = name.clone();
    if name == crate::KEEP_INSERT_ID {
        return Ok(Expr::Function(function));
    }
    if let Some(WindowType::WindowSpec(spec)) = &function.over
        && let Some(base) = &spec.window_name
    {
        return Err(no_window(&base.value));
    }
    if name.starts_with("json_") {
        return crate::json::call_of(&name, function);
    }
    let ours = functions::named(&name).is_some() && name != REPLACE;
    if ours && !SCALARS.iter().any(|(mysql, _)| *mysql == name) {
        return Ok(Expr::Function(function));
    }
    if let Some((_, ours)) = SCALARS.iter().find(|(mysql, _)| *mysql == name) {
        let arguments =
            matches!(&function.args, FunctionArguments::List(list) if !list.args.is_empty());
        let ours = if name == "rand" && arguments { random::SEEDED } else { *ours };
        function.name = vec![plain(ours.to_owned())].into();
        // These ask for a number first.
        let numbers = match name.as_str() {
            "if" | "bit_count" => 1,
            "char" => usize::MAX,
            _ => 0,
        };
        if let FunctionArguments::List(list) = &mut function.args {
            for arg in list.args.iter_mut().take(numbers) {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg {
                    *expr = number_of_hex(std::mem::replace(expr, null()));
                }
            }
        }
        return Ok(Expr::Function(function));
    }
    let windowed = crate::windows::ONLY.contains(&name.as_str());
    if windowed && function.over.is_none() {
        return Err(syntax(format!("{name}(…) stands without OVER")));
    }
    if windowed || NATIVE.contains(&name.as_str()) {
        // COUNT(*) counts rows, as COUNT(1) does.
        if let FunctionArguments::List(list) = &mut function.args {
            for arg in &mut list.args {
                if matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Wildcard)) && name == "count"
                {
                    *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(number(1)));
                }
            }
        }
        if name == "count" {
            count_of_rows(&mut function);
        }
        if let Some((_, args)) = name_and_args(&function) {
            crate::windows::count_within(&name, args.get(1).copied())?;
        }
        function.name = vec![plain(name)].into();
        return Ok(Expr::Function(function));
    }
    if AGGREGATES.contains(&name.as_str()) {
        return aggregate(&name, function);
    }
    contextual(&name, function, context)
}

/// Functions of the current time, the session and the server, and those that are written as calls of others.
fn contextual(name: &str, function: Function, context: &QueryContext) -> SqlResult<Expr> {
    let args: Vec<Expr> = match name_and_args(&function) {
        Some((_, args)) => args.into_iter().cloned().collect(),
        None => return Err(no_function(name)),
    };
    if let Some(time) = of_clock(name, &args, context)? {
        return Ok(time);
    }
    if let Some(value) = of_session(name, &args, context) {
        return Ok(value);
    }
    match of_calls(name, args, context) {
        Some(call) => Ok(call),
        None if KNOWN_ARITY.contains(&name) => Err(wrong_argument_count(name)),
        None => Err(no_function(name)),
    }
}

/// The statement's time; `None` where a function is none of it.
fn of_clock(name: &str, args: &[Expr], context: &QueryContext) -> SqlResult<Option<Expr>> {
    let local = context.zone()?.to_local(context.now_us);
    let digits = match args.first() {
        Some(Expr::Value(v)) => v.value.to_string().parse::<u8>().unwrap_or(0),
        _ => 0,
    };
    // Cut off, not rounded: no clock shows what is still to come.
    let unit = 10i64.pow(6 - u32::from(digits.min(6)));
    let datetime = |us: i64| {
        let text = format_datetime(us.div_euclid(unit) * unit, 6);
        call("cast_datetime", vec![string(text), number(digits)])
    };
    let date = |us: i64| call("cast_date", vec![string(format_datetime(us, 0))]);
    let clock = |us: i64| {
        let text = format_datetime(us.div_euclid(unit) * unit, digits).split_off(11);
        call("cast_time", vec![string(text), number(digits)])
    };
    Ok(Some(match (name, args.len()) {
        ("now" | "current_timestamp" | "localtime" | "localtimestamp" | "sysdate", 0 | 1) => {
            datetime(local)
        }
        ("utc_timestamp", 0 | 1) => datetime(context.now_us),
        ("curdate" | "current_date", 0) => date(local),
        ("utc_date", 0) => date(context.now_us),
        ("curtime" | "current_time", 0 | 1) => clock(local),
        ("utc_time", 0 | 1) => clock(context.now_us),
        ("unix_timestamp", 0) => number(context.now_us.div_euclid(1_000_000)),
        _ => return Ok(None),
    }))
}

/// What is known of the session and the server; `None` where a function asks for something else.
fn of_session(name: &str, args: &[Expr], context: &QueryContext) -> Option<Expr> {
    Some(match (name, args) {
        ("database" | "schema", []) if context.database.is_empty() => null(),
        ("database" | "schema", []) => string(context.database.clone()),
        ("user" | "session_user" | "system_user" | "current_user", []) => {
            string(context.user.clone())
        }
        ("version", []) => string(syntax::dialect::VERSION),
        ("connection_id", []) => number(context.connection_id),
        ("coercibility", [of]) => {
            let column = matches!(of, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            let strength = number(if column { 2 } else { 4 });
            call("mysql_coercibility", vec![of.clone(), strength])
        }
        ("charset", [_]) => string("utf8mb4"),
        ("collation", [_]) => string("utf8mb4_bin"),
        _ => return None,
    })
}

/// Functions that are others with more or other arguments; `None` where one is not.
fn of_calls(name: &str, mut args: Vec<Expr>, context: &QueryContext) -> Option<Expr> {
    Some(match (name, args.len()) {
        ("unix_timestamp", 1) => {
            args.push(string(context.time_zone.clone()));
            call("mysql_unix_timestamp", args)
        }
        ("from_unixtime", 1 | 2) => {
            let format = args.split_off(1);
            args.push(string(context.time_zone.clone()));
            let datetime = call("mysql_from_unixtime", args);
            match format.into_iter().next() {
                Some(format) => call("mysql_date_format", vec![datetime, format]),
                None => datetime,
            }
        }
        ("timestamp", 1) => call("cast_datetime", args),
        ("timestamp", 2) => {
            let more = args.split_off(1);
            let datetime = call("cast_datetime", args);
            call("mysql_addtime", std::iter::once(datetime).chain(more).collect())
        }
        ("date_add" | "adddate", 2) => {
            args.push(string("DAY"));
            call("mysql_date_shift", args)
        }
        ("date_sub" | "subdate", 2) => {
            let days = args.split_off(1).into_iter().map(|days| call("mysql_neg", vec![days]));
            args.extend(days);
            args.push(string("DAY"));
            call("mysql_date_shift", args)
        }
        (REPLACE, 3) => {
            let mut texts: Vec<Expr> =
                args.into_iter().map(|text| call("cast_char", vec![text])).collect();
            texts.push(string("g"));
            call(REPLACE, texts)
        }
        ("log", 1) => call("mysql_ln", args),
        ("log", 2) => {
            let logs: Vec<Expr> =
                args.into_iter().map(|e| call("mysql_ln", vec![e])).rev().collect();
            call("mysql_div", logs)
        }
        ("instr", 2) => call("mysql_locate", args.into_iter().rev().collect()),
        _ => return None,
    })
}

/// Names above that exist, whatever the number of arguments.
const KNOWN_ARITY: &[&str] = &[
    "now",
    "curdate",
    "utc_timestamp",
    "unix_timestamp",
    "from_unixtime",
    "timestamp",
    "subdate",
    REPLACE,
    "log",
    "instr",
    "database",
    "schema",
    "user",
    "version",
    "connection_id",
];
