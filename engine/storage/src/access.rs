//! How a table's rows are reached: which key ranges a condition leaves.
//!
//! Ranges are a superset of what the condition keeps; whoever asks evaluates it again.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use types::{ColumnType, Decimal, Index, Table, Timestamp, Value, Wide, key};

/// Most points that a list of values may become.
const MAX_POINTS: usize = 10_000;

/// A half-open range of keys.
pub type Range = (Vec<u8>, Vec<u8>);

/// The way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// Whole records by their full primary key.
    Points,
    /// Records of primary key ranges.
    Records,
    /// Entries of an index, then their records.
    Index(Box<Index>),
    /// Every record.
    Full,
}

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Way in.
    pub path: Path,
    /// Ranges in ascending order, not overlapping. None: no row can match.
    pub ranges: Vec<Range>,
}

impl Access {
    /// Every record of a table.
    pub fn full(table: &Table) -> Access {
        Access {
            path: Path::Full,
            ranges: vec![(key::records_start(table.id), key::records_end(table.id))],
        }
    }

    /// For EXPLAIN.
    pub fn describe(&self) -> String {
        let ranges = self.ranges.len();
        match &self.path {
            Path::Points => format!("{ranges} primary key point(s)"),
            Path::Records => format!("{ranges} primary key range(s)"),
            Path::Index(index) => format!("{ranges} range(s) of index {}", index.name),
            Path::Full => "full scan".into(),
        }
    }

    /// Whether only a part of the table is read.
    pub fn is_narrow(&self) -> bool {
        self.path != Path::Full
    }
}

/// What the conditions on one column leave of it.
#[derive(Default)]
struct Bounds {
    points: Option<Vec<Value>>,
    low: Option<(Value, bool)>,
    high: Option<(Value, bool)>,
}

impl Bounds {
    /// Widens them to what entries hold that have only the beginning of the column's values. Bounds
    /// are included then: what begins as they do may lie on either side of them.
    fn shorten(&mut self, index: &Index, column: u32) {
        if index.prefix(column).is_none() {
            return;
        }
        for point in self.points.iter_mut().flatten() {
            index.shorten(column, point);
        }
        for (value, included) in [&mut self.low, &mut self.high].into_iter().flatten() {
            index.shorten(column, value);
            *included = true;
        }
    }
}

/// The best way at a timestamp to rows that satisfy all conditions. Columns are named as in
/// [`binder::planning_schema`].
pub fn choose(table: &Table, conditions: &[Expr], ts: Timestamp) -> Access {
    let start = key::records_start(table.id);
    let primary = ranges(table, &table.primary_key, None, conditions, &start);
    let mut best = primary.map(|(ranges, depth, full)| {
        let path = if full { Path::Points } else { Path::Records };
        (depth, Access { path, ranges })
    });
    // Of two that are fixed as far, one that holds whole values leads to fewer rows.
    let serving = |cut: bool| {
        table.indexes.iter().filter(move |index| index.serves(ts) && index.has_prefix() == cut)
    };
    for index in serving(false).chain(serving(true)) {
        let start = key::index_start(table.id, index.id);
        let found = ranges(table, &index.columns, Some(index), conditions, &start);
        let Some((ranges, depth, full)) = found else { continue };
        // A unique index that is met in full is nearly as good as the primary key.
        let depth = if full && index.unique { depth + 10 } else { depth };
        let better = best
            .as_ref()
            .is_none_or(|(known, access)| access.path != Path::Points && depth > *known);
        if better {
            best = Some((depth, Access { path: Path::Index(Box::new(index.clone())), ranges }));
        }
    }
    best.map_or_else(|| Access::full(table), |(_, access)| access)
}

/// Ranges of a key made of these columns, of which an index may hold prefixes; how many half-columns
/// of it the conditions fix; whether they fix all of it. `None` if they say nothing about the first.
fn ranges(
    table: &Table,
    columns: &[u32],
    index: Option<&Index>,
    conditions: &[Expr],
    start: &[u8],
) -> Option<(Vec<Range>, usize, bool)> {
    let mut prefixes = vec![start.to_vec()];
    let mut depth = 0;
    for (at, id) in columns.iter().enumerate() {
        let column = table.column(*id)?;
        let mut bounds = bounds(&column.name.to_lowercase(), column.ty, conditions);
        if let Some(index) = index {
            bounds.shorten(index, *id);
        }
        if let Some(points) = &bounds.points
            && prefixes.len() * points.len() <= MAX_POINTS
        {
            prefixes = extend(&prefixes, points);
            depth += 2;
            if at + 1 == columns.len() {
                let full = !index.is_some_and(Index::has_prefix);
                return Some((finish(prefixes.into_iter().map(whole).collect()), depth, full));
            }
            continue;
        }
        if bounds.low.is_some() || bounds.high.is_some() {
            let ranges = prefixes.iter().map(|prefix| between(prefix, &bounds)).collect();
            return Some((finish(ranges), depth + 1, false));
        }
        break;
    }
    (depth > 0).then(|| (finish(prefixes.into_iter().map(whole).collect()), depth, false))
}

fn extend(prefixes: &[Vec<u8>], points: &[Value]) -> Vec<Vec<u8>> {
    let one = |prefix: &Vec<u8>, point: &Value| {
        let mut longer = prefix.clone();
        key::encode(&mut longer, point);
        longer
    };
    prefixes.iter().flat_map(|prefix| points.iter().map(move |point| one(prefix, point))).collect()
}

fn whole(prefix: Vec<u8>) -> Range {
    let end = key::prefix_end(&prefix);
    (prefix, end)
}

fn between(prefix: &[u8], bounds: &Bounds) -> Range {
    let with = |value: &Value| {
        let mut key = prefix.to_vec();
        key::encode(&mut key, value);
        key
    };
    let start = match &bounds.low {
        Some((value, true)) => with(value),
        Some((value, false)) => key::prefix_end(&with(value)),
        // A comparison is never true of NULL, which sorts first.
        None => key::prefix_end(&with(&Value::Null)),
    };
    let end = match &bounds.high {
        Some((value, true)) => key::prefix_end(&with(value)),
        Some((value, false)) => with(value),
        None => key::prefix_end(prefix),
    };
    (start, end)
}

fn finish(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort();
    ranges.dedup();
    ranges
}

fn bounds(column: &str, ty: ColumnType, conditions: &[Expr]) -> Bounds {
    let mut bounds = Bounds::default();
    for condition in conditions {
        apply(condition, column, ty, &mut bounds);
    }
    bounds
}

fn apply(condition: &Expr, column: &str, ty: ColumnType, bounds: &mut Bounds) {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            apply(left, column, ty, bounds);
            apply(right, column, ty, bounds);
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let mut points = Vec::new();
            if any_of(condition, column, ty, &mut points).is_some() {
                narrow(points, bounds);
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if is_column(left, column) {
                compare(*op, literal(right, ty), bounds);
            } else if is_column(right, column)
                && let Some(op) = op.swap()
            {
                compare(op, literal(left, ty), bounds);
            }
        }
        Expr::InList(list) if !list.negated && is_column(&list.expr, column) => {
            let mut points = Vec::with_capacity(list.list.len());
            for item in &list.list {
                match literal(item, ty) {
                    Some(Value::Null) => {}
                    Some(value) => points.push(value),
                    None => return,
                }
            }
            narrow(points, bounds);
        }
        Expr::IsNull(inner) if is_column(inner, column) => narrow(vec![Value::Null], bounds),
        _ => {}
    }
}

/// `c = 1 OR c = 2 OR …`, which is how short lists arrive here; `None` if it is anything else.
fn any_of(condition: &Expr, column: &str, ty: ColumnType, points: &mut Vec<Value>) -> Option<()> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            any_of(left, column, ty, points)?;
            any_of(right, column, ty, points)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let value = match (is_column(left, column), is_column(right, column)) {
                (true, _) => literal(right, ty)?,
                (_, true) => literal(left, ty)?,
                _ => return None,
            };
            if !value.is_null() {
                points.push(value);
            }
            Some(())
        }
        _ => None,
    }
}

fn narrow(points: Vec<Value>, bounds: &mut Bounds) {
    // The first list of points stands; the rest of the condition is evaluated on the rows.
    bounds.points.get_or_insert(points);
}

fn compare(op: Operator, value: Option<Value>, bounds: &mut Bounds) {
    let Some(value) = value else { return };
    if value.is_null() {
        if op == Operator::IsNotDistinctFrom {
            narrow(vec![Value::Null], bounds);
        }
        return;
    }
    match op {
        Operator::Eq | Operator::IsNotDistinctFrom => narrow(vec![value], bounds),
        // Of several bounds on one side the first is used: a superset either way.
        Operator::Gt => _ = bounds.low.get_or_insert((value, false)),
        Operator::GtEq => _ = bounds.low.get_or_insert((value, true)),
        Operator::Lt => _ = bounds.high.get_or_insert((value, false)),
        Operator::LtEq => _ = bounds.high.get_or_insert((value, true)),
        _ => {}
    }
}

fn is_column(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Column(column) if column.name == name)
}

/// A literal as a value of exactly the column's type; `None` if it is not one.
fn literal(expr: &Expr, ty: ColumnType) -> Option<Value> {
    let Expr::Literal(scalar, _) = expr else { return None };
    if scalar.is_null() {
        return Some(Value::Null);
    }
    match (ty, scalar) {
        (ColumnType::Int { unsigned: false, .. }, _) => {
            let ScalarValue::Int64(Some(n)) = scalar.cast_to(&DataType::Int64).ok()? else {
                return None;
            };
            scalar.data_type().is_integer().then_some(Value::Int(n))
        }
        (ColumnType::Int { unsigned: true, .. }, _) => {
            let ScalarValue::UInt64(Some(n)) = scalar.cast_to(&DataType::UInt64).ok()? else {
                return None;
            };
            scalar.data_type().is_integer().then_some(Value::UInt(n))
        }
        (ColumnType::Double, ScalarValue::Float64(Some(n))) => Some(Value::Double(*n)),
        (ColumnType::Decimal { scale, .. }, ScalarValue::Decimal128(Some(n), _, s))
            if !ty.is_wide() =>
        {
            let n = Decimal { unscaled: *n, scale: u8::try_from(*s).ok()? };
            let same = n.rescale(scale)?;
            // 1.25 is no value of a column with one digit behind the point.
            (same.rescale(n.scale.max(scale)) == n.rescale(n.scale.max(scale)))
                .then_some(Value::Decimal(same))
        }
        (ColumnType::Decimal { scale, .. }, ScalarValue::Decimal256(Some(n), _, s)) => {
            let n = Wide { unscaled: *n, scale: u8::try_from(*s).ok()? };
            let same = n.rescale(scale)?;
            let value = if ty.is_wide() {
                Value::Wide(Box::new(same))
            } else {
                Value::Decimal(same.narrow()?)
            };
            (same.rescale(n.scale.max(scale)) == n.rescale(n.scale.max(scale))).then_some(value)
        }
        (ty, ScalarValue::Utf8(Some(text))) if ty.is_text() => Some(Value::String(text.clone())),
        (ColumnType::Year | ColumnType::Bit(_), _) if scalar.data_type().is_integer() => {
            match scalar.cast_to(&DataType::UInt64).ok()? {
                ScalarValue::UInt64(Some(n)) => Some(Value::UInt(n)),
                _ => None,
            }
        }
        (
            ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_),
            ScalarValue::Binary(Some(bytes)),
        ) => Some(Value::Bytes(bytes.clone())),
        (ColumnType::Time(_), ScalarValue::DurationMicrosecond(Some(us))) => Some(Value::Time(*us)),
        (ColumnType::Date, ScalarValue::Date32(Some(days))) => Some(Value::Date(*days)),
        (ColumnType::DateTime(_), ScalarValue::TimestampMicrosecond(Some(us), None)) => {
            Some(Value::DateTime(*us))
        }
        (ColumnType::Timestamp(_), ScalarValue::TimestampMicrosecond(Some(us), Some(_))) => {
            Some(Value::Timestamp(*us))
        }
        _ => None,
    }
}
