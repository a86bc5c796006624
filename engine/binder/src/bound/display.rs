//! Bound queries as text, for golden scripts and whoever looks for a fault in one. Nothing parses it.

use std::fmt::{self, Display, Formatter};

use types::Value;

use super::changes::{Assigned, BoundChange, NewValue, Target};
use super::insertion::{BoundInsert, GivenRows, GivenValue, NewValueOfMet, OnDuplicate};
use super::tree::{
    AggregateCall, Bound, BoundQuery, ColumnId, Comparison, Connective, Distance, JoinKind, Node,
    Relation, Scalar, Scan, SetOperation, SortKey, WindowCall,
};

impl Display for BoundQuery {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_relation(&self.relation, 0, f)?;
        for column in &self.output {
            write!(f, "column {} `{}`", column.id, column.name)?;
            match column.ty.column {
                Some(ty) => write!(f, " {ty}")?,
                None => f.write_str(" null")?,
            }
            if let Some(origin) = &column.origin {
                write!(f, " of {}.{}", origin.table.database, origin.table.table)?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl Display for BoundChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.query)?;
        for (at, Target { table, called, columns }) in self.targets.iter().enumerate() {
            write!(f, "target {at} {}.{} as {called}: ", table.database, table.table)?;
            write_list(columns, f, |id, f| write!(f, "{id}"))?;
            f.write_str("\n")?;
        }
        for Assigned { target, column, value, .. } in &self.set {
            write!(f, "set column {column} of target {target} to ")?;
            match value {
                NewValue::Found(at) => writeln!(f, "the value {at} that is found")?,
                NewValue::Computed(scalar) => writeln!(f, "{scalar}")?,
            }
        }
        Ok(())
    }
}

impl Display for BoundInsert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("into columns ")?;
        write_list(&self.positions, f, |at, f| write!(f, "{at}"))?;
        f.write_str(" of ")?;
        write_list(&self.columns, f, |id, f| write!(f, "{id}"))?;
        f.write_str("\n")?;
        match &self.rows {
            GivenRows::Query(query) => write!(f, "{query}")?,
            GivenRows::Values(rows) => {
                for row in rows {
                    f.write_str("row ")?;
                    write_list(row, f, |value, f| write!(f, "{value}"))?;
                    f.write_str("\n")?;
                }
            }
        }
        let Some(OnDuplicate { new, beside, set }) = &self.on_duplicate else { return Ok(()) };
        f.write_str("met by new row ")?;
        write_list(new, f, |id, f| write!(f, "{id}"))?;
        if !beside.is_empty() {
            f.write_str(" beside ")?;
            write_list(beside, f, |id, f| write!(f, "{id}"))?;
        }
        f.write_str("\n")?;
        for (at, value) in set {
            match value {
                NewValueOfMet::Default => writeln!(f, "set column {at} to its default")?,
                NewValueOfMet::Computed(scalar) => writeln!(f, "set column {at} to {scalar}")?,
            }
        }
        Ok(())
    }
}

impl Display for GivenValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            GivenValue::Default => f.write_str("default"),
            GivenValue::Literal(value) => write_literal(value, f),
            GivenValue::Computed(scalar) => write!(f, "{scalar}"),
            GivenValue::Found(query) => write_query(query, f),
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_relation(self, 0, f)
    }
}

fn write_relation(relation: &Relation, depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{:1$}", "", depth * 2)?;
    let input = match relation {
        Relation::OneRow => return f.write_str("one row\n"),
        Relation::Scan(scan) => return write_scan(scan, f),
        Relation::Join { kind, left, right, on } => {
            write_join(*kind, on.as_ref(), f)?;
            write_relation(left, depth + 1, f)?;
            right
        }
        Relation::Filter { input, condition } => {
            writeln!(f, "filter {condition}")?;
            input
        }
        Relation::Group { input, keys, aggregates, rollup } => {
            f.write_str("group by (")?;
            write_list(keys, f, |(id, scalar), f| write!(f, "{id} = {scalar}"))?;
            f.write_str(if *rollup { ") and totals compute (" } else { ") compute (" })?;
            write_list(aggregates, f, |(id, call), f| write!(f, "{id} = {call}"))?;
            f.write_str(")\n")?;
            input
        }
        Relation::Windows { input, calls } => {
            f.write_str("windows ")?;
            write_list(calls, f, |(id, call), f| write!(f, "{id} = {call}"))?;
            f.write_str("\n")?;
            input
        }
        Relation::Distinct { input } => {
            f.write_str("distinct\n")?;
            input
        }
        Relation::Set { operation, all, left, right, columns } => {
            write_set(*operation, *all, columns, f)?;
            write_relation(&left.relation, depth + 1, f)?;
            &right.relation
        }
        Relation::Derived { query, alias, lateral } => {
            writeln!(f, "{}query as {alias}", if *lateral { "lateral " } else { "" })?;
            &query.relation
        }
        Relation::Recursive { name, all, first, next, columns } => {
            write!(f, "recursive{} {name} as ", if *all { " all" } else { "" })?;
            write_columns(columns, f)?;
            write_relation(&first.relation, depth + 1, f)?;
            &next.relation
        }
        Relation::Last { name, columns } => {
            write!(f, "last rows of {name}: ")?;
            return write_columns(columns, f);
        }
        Relation::Map { input, columns } => {
            f.write_str("map ")?;
            write_list(columns, f, |(id, scalar), f| write!(f, "{id} = {scalar}"))?;
            f.write_str("\n")?;
            input
        }
        Relation::Sort { input, by } => {
            write_sort(by, f)?;
            input
        }
        Relation::Limit { input, skip, fetch } => {
            write_limit(*skip, *fetch, f)?;
            input
        }
    };
    write_relation(input, depth + 1, f)
}

fn write_sort(by: &[SortKey], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("sort by ")?;
    write_list(by, f, |key, f| write!(f, "{key}"))?;
    f.write_str("\n")
}

fn write_limit(skip: u64, fetch: Option<u64>, f: &mut Formatter<'_>) -> fmt::Result {
    let fetch = fetch.map(|fetch| format!(" fetch {fetch}")).unwrap_or_default();
    writeln!(f, "limit skip {skip}{fetch}")
}

fn write_join(kind: JoinKind, on: Option<&Scalar>, f: &mut Formatter<'_>) -> fmt::Result {
    let kind = match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
    };
    write!(f, "{kind} join")?;
    if let Some(on) = on {
        write!(f, " on {on}")?;
    }
    f.write_str("\n")
}

fn write_set(
    operation: SetOperation,
    all: bool,
    columns: &[ColumnId],
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let operation = match operation {
        SetOperation::Union => "union",
        SetOperation::Intersect => "intersect",
        SetOperation::Except => "except",
    };
    write!(f, "{operation}{} as ", if all { " all" } else { "" })?;
    write_columns(columns, f)
}

fn write_columns(columns: &[ColumnId], f: &mut Formatter<'_>) -> fmt::Result {
    write_list(columns, f, |id, f| write!(f, "{id}"))?;
    f.write_str("\n")
}

fn write_scan(scan: &Scan, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "scan {}.{}", scan.table.database, scan.table.table)?;
    if let Some(alias) = &scan.alias {
        write!(f, " as {alias}")?;
    }
    f.write_str(": ")?;
    write_list(&scan.columns, f, |(place, id), f| write!(f, "{id} at {place}"))?;
    f.write_str("\n")
}

fn write_literal(value: &Value, f: &mut Formatter<'_>) -> fmt::Result {
    match value {
        Value::String(text) => write!(f, "'{}'", text.replace('\'', "''")),
        value => write!(f, "{value}"),
    }
}

fn write_list<T>(
    items: &[T],
    f: &mut Formatter<'_>,
    mut write: impl FnMut(&T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        write(item, f)?;
    }
    Ok(())
}

impl Display for SortKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.column, if self.descending { " desc" } else { "" })
    }
}

impl Display for ColumnId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl Display for Scalar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Column(id) | Node::Aggregate(id) | Node::Window(id) => write!(f, "{id}"),
            Node::Outer(id) => write!(f, "outer {id}"),
            Node::Query(query) => write_query(query, f),
            Node::Exists { query, negated } => {
                write!(f, "{}exists ", not(*negated))?;
                write_query(query, f)
            }
            Node::InQuery { values, query, negated } => {
                f.write_str("(")?;
                write_list(values, f, |value, f| write!(f, "{value}"))?;
                write!(f, " {}in ", not(*negated))?;
                write_query(query, f)?;
                f.write_str(")")
            }
            Node::Literal(value) => write_literal(value, f),
            Node::Parameter(place) => write!(f, "?{}", place + 1),
            Node::Call { function, args } => {
                write!(f, "{function}(")?;
                write_list(args, f, |arg, f| write!(f, "{arg}"))?;
                f.write_str(")")
            }
            Node::Compare { comparison, left, right } => {
                write!(f, "({left} {} {right})", symbol(*comparison))
            }
            Node::Logic { connective, left, right } => {
                let word = match connective {
                    Connective::And => "and",
                    Connective::Or => "or",
                    Connective::Xor => "xor",
                    Connective::Both => "both",
                    Connective::Either => "either",
                };
                write!(f, "({left} {word} {right})")
            }
            Node::Not(value) => write!(f, "not({value})"),
            Node::Convert(value) => match self.ty.column {
                Some(ty) => write!(f, "({value} as {ty})"),
                None => write!(f, "({value} as null)"),
            },
            Node::IsNull { value, negated } => write!(f, "({value} is {}null)", not(*negated)),
            Node::IsTruth { value, truth, negated } => {
                write!(f, "({value} is {}{truth})", not(*negated))
            }
            Node::In { value, list, negated } => {
                write!(f, "({value} {}in (", not(*negated))?;
                write_list(list, f, |item, f| write!(f, "{item}"))?;
                f.write_str("))")
            }
            Node::Like { text, pattern, negated } => {
                write!(f, "({text} {}like {pattern})", not(*negated))
            }
            Node::Case { branches, otherwise } => {
                f.write_str("case")?;
                for (when, then) in branches {
                    write!(f, " when {when} then {then}")?;
                }
                if let Some(last) = otherwise {
                    write!(f, " else {last}")?;
                }
                f.write_str(" end")
            }
        }
    }
}

/// A query within an expression, on one line.
fn write_query(query: &BoundQuery, f: &mut Formatter<'_>) -> fmt::Result {
    let lines = query.relation.to_string();
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    write!(f, "[{}]", lines.join("; "))
}

impl Display for AggregateCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let AggregateCall { function, args, distinct, order } = self;
        write!(f, "{function}({}", if *distinct { "distinct " } else { "" })?;
        write_list(args, f, |arg, f| write!(f, "{arg}"))?;
        if !order.is_empty() {
            f.write_str(" order by ")?;
            write_order(order, f)?;
        }
        f.write_str(")")
    }
}

fn write_order(order: &[(Scalar, bool)], f: &mut Formatter<'_>) -> fmt::Result {
    write_list(order, f, |(by, down), f| write!(f, "{by}{}", if *down { " desc" } else { "" }))
}

impl Display for WindowCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let WindowCall { function, args, partition, order, frame } = self;
        write!(f, "{function}(")?;
        write_list(args, f, |arg, f| write!(f, "{arg}"))?;
        f.write_str(") over (partition by (")?;
        write_list(partition, f, |by, f| write!(f, "{by}"))?;
        f.write_str(") order by (")?;
        write_order(order, f)?;
        let units = if frame.rows { "rows" } else { "range" };
        write!(f, ") {units} from {} to {})", frame.start, frame.end)
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (distance, side) = match self {
            Bound::CurrentRow => return f.write_str("current row"),
            Bound::Preceding(distance) => (distance, "preceding"),
            Bound::Following(distance) => (distance, "following"),
        };
        match distance {
            None => write!(f, "unbounded {side}"),
            Some(Distance::Number(by) | Distance::Interval(by)) => write!(f, "{by} {side}"),
        }
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "not " } else { "" }
}

fn symbol(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::NullSafeEqual => "<=>",
    }
}
