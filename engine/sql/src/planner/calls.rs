//! MySQL's functions and casts by name: which of ours each one is.
//!
//! A name that is not listed here does not exist (error 1305), whatever DataFusion may know.

use sqlparser::ast::{
    BinaryOperator, CeilFloorKind, DataType, DateTimeField, ExactNumberInfo, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments,
    TrimWhereField, Value,
};

use super::QueryContext;
use super::names::parts;
use super::rewrite::{null, op, plain, value};
use crate::error::{SqlResult, no_function, syntax, unsupported};
use crate::functions;
use crate::result::SqlError;
use crate::temporal::{Unit, Zone, format_datetime};

/// A call of a function by name.
pub fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: vec![plain(name.to_owned())].into(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// A text literal.
pub fn string(text: impl Into<String>) -> Expr {
    value(Value::SingleQuotedString(text.into()))
}

/// A number literal.
pub fn number(n: impl std::fmt::Display) -> Expr {
    value(Value::Number(n.to_string(), false))
}

/// The text that a hexadecimal literal spells.
pub fn text_of_hex(hex: &str) -> SqlResult<String> {
    let padded = if hex.len() % 2 == 1 { format!("0{hex}") } else { hex.to_owned() };
    let bytes = (0..padded.len() / 2)
        .map(|at| padded.get(at * 2..at * 2 + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| syntax(format!("X'{hex}' is not hexadecimal")))?;
    String::from_utf8(bytes).map_err(|_| unsupported("binary literals that are not UTF-8"))
}

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
    if interval.last_field.is_some() {
        return Err(unsupported(format!("INTERVAL … {unit} TO …")));
    }
    let count = (*interval.value).clone();
    let count = if back { call("mysql_neg", vec![count]) } else { count };
    Ok(call("mysql_date_shift", vec![date.clone(), count, string(known_unit(&unit)?)]))
}

/// Every other form that is a function in disguise.
pub fn rewritten(expr: Expr, context: &QueryContext) -> SqlResult<Expr> {
    Ok(match expr {
        Expr::Function(function) => function_call(function, context)?,
        Expr::Cast { expr, data_type, array: false, .. } => cast(*expr, &data_type)?,
        Expr::Convert { expr, data_type: Some(data_type), .. } => cast(*expr, &data_type)?,
        Expr::Convert { expr, charset: Some(_), .. } => call("cast_char", vec![*expr]),
        Expr::TypedString(typed) => {
            let text = typed.value.into_string().unwrap_or_default();
            cast(string(text), &typed.data_type)?
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
            let mut args = vec![*expr, substring_from.map_or_else(|| number(1), |e| *e)];
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

fn cast(expr: Expr, ty: &DataType) -> SqlResult<Expr> {
    let one = |name: &str, expr: Expr| Ok(call(name, vec![expr]));
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
        DataType::Date => one("cast_date", expr),
        DataType::Datetime(digits) | DataType::Timestamp(digits, _) => {
            Ok(call("cast_datetime", vec![expr, number(digits.unwrap_or(0))]))
        }
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => {
            let (precision, scale) = match info {
                ExactNumberInfo::None => (10, 0),
                ExactNumberInfo::Precision(p) => (*p, 0),
                ExactNumberInfo::PrecisionAndScale(p, s) => (*p, *s),
            };
            Ok(call("cast_decimal", vec![expr, number(precision), number(scale)]))
        }
        DataType::Char(length) | DataType::Varchar(length) | DataType::Nvarchar(length) => {
            let mut args = vec![expr];
            if let Some(sqlparser::ast::CharacterLength::IntegerLength { length, .. }) = length {
                args.push(number(length));
            }
            Ok(call("cast_char", args))
        }
        DataType::Text | DataType::Binary(None) => one("cast_char", expr),
        other => Err(unsupported(format!("CAST(… AS {other})"))),
    }
}

/// MySQL's name → ours, for functions that differ by name only.
const SCALARS: &[(&str, &str)] = &[
    ("if", "mysql_if"),
    ("ifnull", "mysql_coalesce"),
    ("nvl", "mysql_coalesce"),
    ("coalesce", "mysql_coalesce"),
    ("nullif", "mysql_nullif"),
    ("greatest", "mysql_greatest"),
    ("least", "mysql_least"),
    ("isnull", "isnull"),
    ("round", "mysql_round"),
    ("truncate", "mysql_truncate"),
    ("floor", "mysql_floor"),
    ("ceil", "mysql_ceil"),
    ("ceiling", "mysql_ceil"),
    ("abs", "mysql_abs"),
    ("sign", "mysql_sign"),
    ("mod", "mysql_mod"),
    ("sqrt", "mysql_sqrt"),
    ("exp", "mysql_exp"),
    ("ln", "mysql_ln"),
    ("log2", "mysql_log2"),
    ("log10", "mysql_log10"),
    ("pow", "mysql_pow"),
    ("power", "mysql_pow"),
    ("sin", "mysql_sin"),
    ("cos", "mysql_cos"),
    ("tan", "mysql_tan"),
    ("asin", "mysql_asin"),
    ("acos", "mysql_acos"),
    ("atan", "mysql_atan"),
    ("atan2", "mysql_atan2"),
    ("radians", "mysql_radians"),
    ("degrees", "mysql_degrees"),
    ("pi", "mysql_pi"),
    ("rand", "mysql_rand"),
    ("crc32", "mysql_crc32"),
    ("conv", "mysql_conv"),
    ("md5", "mysql_md5"),
    ("concat", "mysql_concat"),
    ("concat_ws", "mysql_concat_ws"),
    ("upper", "mysql_upper"),
    ("ucase", "mysql_upper"),
    ("lower", "mysql_lower"),
    ("lcase", "mysql_lower"),
    ("reverse", "mysql_reverse"),
    ("hex", "mysql_hex"),
    ("quote", "mysql_quote"),
    ("length", "mysql_length"),
    ("octet_length", "mysql_length"),
    ("char_length", "mysql_char_length"),
    ("character_length", "mysql_char_length"),
    ("bit_length", "mysql_bit_length"),
    ("ascii", "mysql_ascii"),
    ("left", "mysql_left"),
    ("right", "mysql_right"),
    ("repeat", "mysql_repeat"),
    ("space", "mysql_space"),
    ("substring", "mysql_substring"),
    ("substr", "mysql_substring"),
    ("mid", "mysql_substring"),
    ("substring_index", "mysql_substring_index"),
    ("replace", "mysql_replace"),
    ("trim", "mysql_trim"),
    ("ltrim", "mysql_ltrim"),
    ("rtrim", "mysql_rtrim"),
    ("lpad", "mysql_lpad"),
    ("rpad", "mysql_rpad"),
    ("locate", "mysql_locate"),
    ("strcmp", "mysql_strcmp"),
    ("field", "mysql_field"),
    ("elt", "mysql_elt"),
    ("find_in_set", "mysql_find_in_set"),
    ("format", "mysql_format"),
    ("regexp_like", "mysql_regexp"),
    ("date", "cast_date"),
    ("year", "mysql_year"),
    ("month", "mysql_month"),
    ("day", "mysql_dayofmonth"),
    ("dayofmonth", "mysql_dayofmonth"),
    ("hour", "mysql_hour"),
    ("minute", "mysql_minute"),
    ("second", "mysql_second"),
    ("microsecond", "mysql_microsecond"),
    ("quarter", "mysql_quarter"),
    ("dayofweek", "mysql_dayofweek"),
    ("weekday", "mysql_weekday"),
    ("dayofyear", "mysql_dayofyear"),
    ("weekofyear", "mysql_weekofyear"),
    ("week", "mysql_week"),
    ("to_days", "mysql_to_days"),
    ("from_days", "mysql_from_days"),
    ("makedate", "mysql_makedate"),
    ("last_day", "mysql_last_day"),
    ("dayname", "mysql_dayname"),
    ("monthname", "mysql_monthname"),
    ("date_format", "mysql_date_format"),
    ("datediff", "mysql_datediff"),
    ("time", "mysql_time_of_day"),
    ("str_to_date", "mysql_str_to_date"),
];

/// Functions that DataFusion computes as MySQL does: aggregates and window functions.
const NATIVE: &[&str] = &[
    "count",
    "min",
    "max",
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
    "bit_and",
    "bit_or",
    "bit_xor",
];

fn function_call(mut function: Function, context: &QueryContext) -> SqlResult<Expr> {
    let names = parts(&function.name);
    let [name] = &names[..] else { return Err(no_function(&names.join("."))) };
    let name = name.clone();
    if functions::named(&name).is_some() && !SCALARS.iter().any(|(mysql, _)| *mysql == name) {
        return Ok(Expr::Function(function));
    }
    if let Some((_, ours)) = SCALARS.iter().find(|(mysql, _)| *mysql == name) {
        function.name = vec![plain((*ours).to_owned())].into();
        return Ok(Expr::Function(function));
    }
    if NATIVE.contains(&name.as_str()) {
        // COUNT(*) counts rows, as COUNT(1) does.
        if let FunctionArguments::List(list) = &mut function.args {
            for arg in &mut list.args {
                if matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Wildcard)) && name == "count"
                {
                    *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(number(1)));
                }
            }
        }
        function.name = vec![plain(name)].into();
        return Ok(Expr::Function(function));
    }
    match name.as_str() {
        "sum" | "avg" | "std" | "stddev" | "stddev_pop" | "stddev_samp" | "variance"
        | "var_pop" | "var_samp" | "any_value" | "group_concat" => aggregate(&name, function),
        _ => contextual(&name, function, context),
    }
}

/// Aggregates whose argument or result MySQL types otherwise.
fn aggregate(name: &str, mut function: Function) -> SqlResult<Expr> {
    let renamed = |mut function: Function, name: &str, wrap: &str| {
        function.name = vec![plain(name.to_owned())].into();
        if let FunctionArguments::List(list) = &mut function.args {
            for arg in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg {
                    let inner = std::mem::replace(expr, null());
                    *expr = call(wrap, vec![inner]);
                }
            }
        }
        Expr::Function(function)
    };
    Ok(match name {
        "sum" => call("sum_result", vec![renamed(function, "sum", "sum_arg")]),
        "avg" => {
            let mut count = function.clone();
            count.name = vec![plain("count".to_owned())].into();
            let sum = call("sum_result", vec![renamed(function, "sum", "sum_arg")]);
            Expr::Nested(Box::new(op(sum, BinaryOperator::Divide, Expr::Function(count))))
        }
        "std" | "stddev" | "stddev_pop" => renamed(function, "stddev_pop", "cast_double"),
        "stddev_samp" => renamed(function, "stddev", "cast_double"),
        "variance" | "var_pop" => renamed(function, "var_pop", "cast_double"),
        "var_samp" => renamed(function, "var", "cast_double"),
        "any_value" => {
            function.name = vec![plain("first_value".to_owned())].into();
            Expr::Function(function)
        }
        _ => group_concat(function, renamed)?,
    })
}

fn group_concat(
    mut function: Function,
    renamed: impl Fn(Function, &str, &str) -> Expr,
) -> SqlResult<Expr> {
    let mut separator = ",".to_owned();
    if let FunctionArguments::List(list) = &mut function.args {
        if list.args.len() != 1 {
            return Err(unsupported("GROUP_CONCAT of several expressions"));
        }
        list.clauses.retain(|clause| match clause {
            FunctionArgumentClause::Separator(text) => {
                if let Value::SingleQuotedString(s) | Value::DoubleQuotedString(s) = &text.value {
                    separator.clone_from(s);
                }
                false
            }
            _ => true,
        });
    }
    let mut call = renamed(function, "string_agg", "cast_char");
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut call {
        list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(string(separator))));
    }
    Ok(call)
}

/// Functions of the moment, the session and the server.
fn contextual(name: &str, function: Function, context: &QueryContext) -> SqlResult<Expr> {
    let args: Vec<Expr> = match name_and_args(&function) {
        Some((_, args)) => args.into_iter().cloned().collect(),
        None => return Err(no_function(name)),
    };
    let local = context.zone()?.to_local(context.now_us);
    let digits = match args.first() {
        Some(Expr::Value(v)) => v.value.to_string().parse::<u8>().unwrap_or(0),
        _ => 0,
    };
    let moment = |us: i64| {
        let cut = us.div_euclid(1_000_000) * 1_000_000;
        let us = if digits == 0 { cut } else { us };
        call("cast_datetime", vec![string(format_datetime(us, 6)), number(digits)])
    };
    let clock = |us: i64| string(format_datetime(us, digits).split_off(11));
    Ok(match (name, args.len()) {
        ("now" | "current_timestamp" | "localtime" | "localtimestamp" | "sysdate", 0 | 1) => {
            moment(local)
        }
        ("utc_timestamp", 0 | 1) => moment(context.now_us),
        ("curdate" | "current_date", 0) => {
            call("cast_date", vec![string(format_datetime(local, 0))])
        }
        ("utc_date", 0) => call("cast_date", vec![string(format_datetime(context.now_us, 0))]),
        ("curtime" | "current_time", 0 | 1) => clock(local),
        ("utc_time", 0 | 1) => clock(context.now_us),
        ("unix_timestamp", 0) => number(context.now_us.div_euclid(1_000_000)),
        ("unix_timestamp", 1) => {
            utc_only(context, "UNIX_TIMESTAMP(…)")?;
            call("mysql_unix_timestamp", args)
        }
        ("from_unixtime", 1) => {
            utc_only(context, "FROM_UNIXTIME(…)")?;
            call("mysql_from_unixtime", args)
        }
        ("timestamp", 1) => {
            call("cast_datetime", vec![args.into_iter().next().unwrap_or_else(null), number(6)])
        }
        ("date_add" | "adddate", 2) => {
            let mut args = args;
            args.push(string("DAY"));
            call("mysql_date_shift", args)
        }
        ("log", 1) => call("mysql_ln", args),
        ("log", 2) => {
            let logs: Vec<Expr> =
                args.into_iter().map(|e| call("mysql_ln", vec![e])).rev().collect();
            call("mysql_div", logs)
        }
        ("instr", 2) => call("mysql_locate", args.into_iter().rev().collect()),
        ("database" | "schema", 0) => {
            if context.database.is_empty() {
                null()
            } else {
                string(context.database.clone())
            }
        }
        ("user" | "session_user" | "system_user" | "current_user", 0) => {
            string(context.user.clone())
        }
        ("version", 0) => string(crate::variables::VERSION),
        ("connection_id", 0) => number(context.connection_id),
        ("charset", 1) => string("utf8mb4"),
        ("collation", 1) => string("utf8mb4_bin"),
        _ if KNOWN_ARITY.contains(&name) => {
            return Err(SqlError::new(
                1582,
                b"42000",
                format!("Incorrect parameter count in the call to native function '{name}'"),
            ));
        }
        _ => return Err(no_function(name)),
    })
}

/// Names above that exist, whatever the number of arguments.
const KNOWN_ARITY: &[&str] = &[
    "now",
    "curdate",
    "utc_timestamp",
    "unix_timestamp",
    "from_unixtime",
    "log",
    "instr",
    "database",
    "schema",
    "user",
    "version",
    "connection_id",
];

fn utc_only(context: &QueryContext, what: &str) -> SqlResult<()> {
    match context.zone()? {
        Zone::Fixed(0) => Ok(()),
        _ => Err(unsupported(format!("{what} in a session time zone other than UTC"))),
    }
}
