//! UNION, INTERSECT and EXCEPT bound: both sides at the types that MySQL gives their columns together.
//!
//! INTERSECT ALL and EXCEPT ALL are those of rows that are numbered among their like.

use sqlparser::ast::{Expr, Parens, Query, SetExpr, SetOperator, SetQuantifier};
use types::ColumnType;
use values::error::{SqlResult, different_column_counts, syntax, unknown, unsupported};
use values::mysql_type::MysqlType;

use super::arguments;
use super::call_types::{self, arrow};
use super::query::{Binder, Tail, limited};
use super::scope::{Clause, Scope};
use super::select_list::ordered_by_name;
use super::tree::{
    Bound, BoundQuery, ColumnId, Frame, Node, OutputColumn, Relation, Scalar, SetOperation,
    SortKey, WindowCall,
};
use super::windows;

impl<'a> Binder<'a> {
    /// Binds a query whose body is a set operation.
    pub(super) fn set_query(&mut self, query: &'a Query) -> SqlResult<BoundQuery> {
        let BoundQuery { relation, output } = self.set(&query.body)?;
        let relation = self.set_sorted(relation, &output, &Tail::of(query))?;
        Ok(BoundQuery { relation: limited(query.limit_clause.as_ref(), relation)?, output })
    }

    /// The whole, sorted: by its columns, by name or place, or by expressions of them.
    fn set_sorted(
        &mut self,
        input: Relation,
        output: &[OutputColumn],
        tail: &Tail,
    ) -> SqlResult<Relation> {
        let named: Vec<(&str, &ColumnId)> =
            output.iter().map(|column| (column.name.as_str(), &column.id)).collect();
        self.scope = Scope::default();
        self.scope.add_derived("", output);
        let (mut by, mut computed) = (Vec::new(), Vec::new());
        for order in tail.orders()? {
            let column = match ordered_by_name(order, &named)? {
                Some(at) => {
                    let missing = || unknown("a column of a set is missing");
                    output.get(at).ok_or_else(missing)?.id
                }
                None => {
                    let plain = self.plain(&order.expr)?;
                    let scalar = self.scalars(Clause::OrderBy, &plain).bind(&plain.expr)?;
                    computed.push((self.next(), self.values(scalar, true)?));
                    computed.last().map_or(ColumnId(0), |(id, _)| *id)
                }
            };
            by.push(SortKey { column, descending: order.options.asc == Some(false) });
        }
        self.scope = Scope::default();
        let mut relation = input;
        if !computed.is_empty() {
            let own = output.iter().map(|column| (column.id, value_of(column)));
            let columns = own.chain(computed).collect();
            relation = Relation::Map { input: Box::new(relation), columns };
        }
        Ok(match by.is_empty() {
            true => relation,
            false => Relation::Sort { input: Box::new(relation), by },
        })
    }

    pub(super) fn set(&mut self, body: &'a SetExpr) -> SqlResult<BoundQuery> {
        match body {
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::Distinct | SetQuantifier::None => false,
                    other => return Err(syntax(format!("{op} {other}"))),
                };
                let operation = match op {
                    SetOperator::Union => SetOperation::Union,
                    SetOperator::Intersect => SetOperation::Intersect,
                    SetOperator::Except => SetOperation::Except,
                    SetOperator::Minus => return Err(syntax("MINUS (MySQL has EXCEPT)")),
                };
                let (left, right) = (self.set(left)?, self.set(right)?);
                Ok(self.together(operation, all, left, right)?)
            }
            SetExpr::Query(query) => self.query(query).map(apart),
            SetExpr::Select(select) => self.side(select),
            SetExpr::Values(values) => self.rows_of_values(&values.rows),
            other => Err(unsupported(format!("a query of the form {other}"))),
        }
    }

    /// VALUES: rows one behind the other, of columns that are called `column_0` and so on.
    fn rows_of_values(&mut self, rows: &'a [Parens<Vec<Expr>>]) -> SqlResult<BoundQuery> {
        let mut whole: Option<BoundQuery> = None;
        for row in rows {
            let mut columns = Vec::with_capacity(row.content.len());
            let mut output = Vec::with_capacity(row.content.len());
            for (at, expr) in row.content.iter().enumerate() {
                let plain = self.plain(expr)?;
                let scalar = self.scalars(Clause::FieldList, &plain).bind(&plain.expr)?;
                let scalar = self.values(scalar, true)?;
                let (id, ty) = (self.next(), scalar.ty);
                output.push(OutputColumn { id, name: format!("column_{at}"), origin: None, ty });
                columns.push((id, scalar));
            }
            let relation = Relation::Map { input: Box::new(Relation::OneRow), columns };
            let row = BoundQuery { relation, output };
            whole = Some(match whole {
                Some(rows) => self.together(SetOperation::Union, true, rows, row)?,
                None => row,
            });
        }
        whole.ok_or_else(|| syntax("VALUES without rows"))
    }

    fn together(
        &self,
        operation: SetOperation,
        all: bool,
        left: BoundQuery,
        right: BoundQuery,
    ) -> SqlResult<BoundQuery> {
        if left.output.len() != right.output.len() {
            return Err(different_column_counts());
        }
        let mut output = Vec::with_capacity(left.output.len());
        for (one, other) in left.output.iter().zip(&right.output) {
            let sides = [value_of(one), value_of(other)];
            let ty = call_types::of_several(sides.iter());
            output.push(OutputColumn { id: self.next(), name: one.name.clone(), origin: None, ty });
        }
        let left = converted_to(self, left, &output)?;
        let right = converted_to(self, right, &output)?;
        let mut columns: Vec<ColumnId> = output.iter().map(|column| column.id).collect();
        let (left, right) = match all && operation != SetOperation::Union {
            true => {
                columns.push(self.next());
                (self.counted(left)?, self.counted(right)?)
            }
            false => (left, right),
        };
        // Rows that are counted are several no more.
        let all = all && operation == SetOperation::Union;
        let (left, right) = (Box::new(left), Box::new(right));
        let relation = Relation::Set { operation, all, left, right, columns };
        Ok(BoundQuery { relation, output })
    }

    /// A side each of whose rows says how many like it came before: of an operation that takes rows as often as they are.
    fn counted(&self, side: BoundQuery) -> SqlResult<BoundQuery> {
        let BoundQuery { relation, mut output } = side;
        let (function, partition) = ("row_number", output.iter().map(value_of));
        let frame =
            Frame { rows: true, start: Bound::Preceding(None), end: Bound::Following(None) };
        let call = WindowCall {
            function: function.to_owned(),
            partition: partition.collect(),
            order: Vec::new(),
            args: Vec::new(),
            frame,
        };
        let ty = windows::type_of(function, &[])?;
        let (computed, shown) = (self.next(), self.next());
        let number = Scalar { node: Node::Window(computed), ty };
        let mut columns: Vec<(ColumnId, Scalar)> = Vec::with_capacity(output.len() + 1);
        for column in &mut output {
            let value = value_of(column);
            column.id = self.next();
            columns.push((column.id, value));
        }
        columns.push((shown, number));
        output.push(OutputColumn { id: shown, name: String::new(), origin: None, ty });
        let input = Box::new(Relation::Windows {
            input: Box::new(relation),
            calls: vec![(computed, call)],
        });
        Ok(BoundQuery { relation: Relation::Map { input, columns }, output })
    }
}

/// A side whose columns have the types of the whole.
pub(super) fn converted_to(
    binder: &Binder,
    side: BoundQuery,
    whole: &[OutputColumn],
) -> SqlResult<BoundQuery> {
    let mut side = side;
    convert_where_computed(binder, &mut side, whole, converted)?;
    if side.output.iter().zip(whole).all(|(column, whole)| fits(&column.ty, &whole.ty)) {
        return Ok(side);
    }
    let mut output = side.output;
    let mut columns = Vec::with_capacity(output.len());
    for (column, whole) in output.iter_mut().zip(whole) {
        let value = converted(value_of(column), whole.ty)?;
        (column.id, column.ty) = (binder.next(), value.ty);
        columns.push((column.id, value));
    }
    let relation = Relation::Map { input: Box::new(side.relation), columns };
    Ok(BoundQuery { relation, output })
}

/// Converts decimals where they are computed, if they are neither distinct nor another query's: a quotient has more digits
/// there than it shows, and those that a column of the whole has room for come out.
pub(super) fn convert_where_computed(
    binder: &Binder,
    side: &mut BoundQuery,
    whole: &[OutputColumn],
    convert: impl Fn(Scalar, MysqlType) -> SqlResult<Scalar>,
) -> SqlResult<()> {
    let BoundQuery { relation, output } = side;
    let ids: Vec<ColumnId> = output.iter().map(|column| column.id).collect();
    let is_converted = |column: &OutputColumn, whole: &OutputColumn| {
        let is_shown_once = ids.iter().filter(|id| **id == column.id).count() == 1;
        let is_number = is_decimal(&whole.ty) || whole.ty.column == Some(ColumnType::Double);
        is_shown_once && is_number && is_decimal(&column.ty) && !fits(&column.ty, &whole.ty)
    };
    if !output.iter().zip(whole).any(|(column, whole)| is_converted(column, whole)) {
        return Ok(());
    }
    if let Relation::Set { operation: SetOperation::Union, left, right, .. } = relation {
        for (column, whole) in output.iter_mut().zip(whole) {
            if is_converted(column, whole) {
                column.ty = whole.ty;
            }
        }
        for branch in [left, right] {
            **branch = converted_to(binder, BoundQuery::clone(branch), output)?;
        }
        return Ok(());
    }
    let Some(columns) = computed(relation) else { return Ok(()) };
    for (column, whole) in output.iter_mut().zip(whole) {
        let value = columns.iter_mut().find(|(id, _)| *id == column.id);
        if let Some((_, value)) = value.filter(|_| is_converted(column, whole)) {
            *value = chosen_of(value.clone(), whole.ty, &convert)?;
            column.ty = value.ty;
        }
    }
    Ok(())
}

/// A value converted where it is chosen among others: a quotient in a branch shows no more digits than the branches have.
fn chosen_of(
    value: Scalar,
    ty: MysqlType,
    convert: &impl Fn(Scalar, MysqlType) -> SqlResult<Scalar>,
) -> SqlResult<Scalar> {
    let each = |value| chosen_of(value, ty, convert);
    let node = match value.node {
        Node::Call { function, args } if ["mysql_if", "mysql_coalesce"].contains(&&*function) => {
            let conditions = usize::from(function == "mysql_if");
            let args = args.into_iter().enumerate();
            let args = args.map(|(at, arg)| if at < conditions { Ok(arg) } else { each(arg) });
            Node::Call { function, args: args.collect::<SqlResult<_>>()? }
        }
        Node::Case { branches, otherwise } => {
            let branches = branches.into_iter().map(|(when, then)| Ok((when, each(then)?)));
            let branches = branches.collect::<SqlResult<_>>()?;
            let otherwise = otherwise.map(|value| each(*value).map(Box::new)).transpose()?;
            Node::Case { branches, otherwise }
        }
        node => return convert(Scalar { node, ty: value.ty }, ty),
    };
    Ok(Scalar { node, ty })
}

/// A query in parentheses, whose rows are distinct by its own types.
fn apart(query: BoundQuery) -> BoundQuery {
    let BoundQuery { relation, output } = query;
    let relation = match relation {
        Relation::Set { all: false, .. } => {
            let columns = output.iter().map(|column| (column.id, value_of(column))).collect();
            Relation::Map { input: Box::new(relation), columns }
        }
        other => other,
    };
    BoundQuery { relation, output }
}

/// What computes the columns of rows that are not sorted: they are by what is shown.
fn computed(relation: &mut Relation) -> Option<&mut Vec<(ColumnId, Scalar)>> {
    match relation {
        Relation::Map { columns, .. } => Some(columns),
        Relation::Limit { input, .. } => computed(input),
        _ => None,
    }
}

fn is_decimal(ty: &MysqlType) -> bool {
    matches!(ty.column, Some(ColumnType::Decimal { .. }))
}

/// Whether values need no conversion. One of ENUM or SET is a text among those of several places.
fn fits(ty: &MysqlType, whole: &MysqlType) -> bool {
    let labelled = ty.column.is_some_and(|column| column.labels().is_some());
    !labelled && arrow(ty) == arrow(whole)
}

/// A value as the same value of a type that holds those of several places.
fn converted(value: Scalar, ty: MysqlType) -> SqlResult<Scalar> {
    if fits(&value.ty, &ty) {
        return Ok(value);
    }
    let function = match ty.column {
        Some(column) if column.is_text() => "cast_char",
        Some(ColumnType::Double) => "cast_double",
        Some(ColumnType::Varbinary(_)) => "cast_binary",
        _ => return Ok(Scalar { node: Node::Convert(Box::new(value)), ty }),
    };
    if value.ty == MysqlType::NULL {
        return Ok(Scalar { node: Node::Convert(Box::new(value)), ty });
    }
    arguments::call(function, arguments::taken_by(function, vec![value])?)
}

fn value_of(column: &OutputColumn) -> Scalar {
    Scalar { node: Node::Column(column.id), ty: column.ty }
}
