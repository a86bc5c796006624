//! UNION, INTERSECT and EXCEPT bound: both sides at the types that MySQL gives their columns together.
//!
//! INTERSECT ALL and EXCEPT ALL are those of rows that are numbered among their like.

use sqlparser::ast::{OrderByExpr, Query, SetExpr, SetOperator, SetQuantifier};
use types::ColumnType;
use values::error::{SqlResult, different_column_counts};
use values::mysql_type::MysqlType;

use super::arguments;
use super::call_types::{self, arrow};
use super::query::{Binder, Tail, limited, ordered_by_name};
use super::scalars::{Result, Unbound};
use super::tree::{
    Bound, BoundQuery, ColumnId, Frame, Node, OutputColumn, Relation, Scalar, SetOperation,
    SortKey, WindowCall,
};
use super::windows;

impl<'a> Binder<'a> {
    /// Binds a query whose body is a set operation.
    pub(super) fn set_query(&mut self, query: &'a Query) -> Result<BoundQuery> {
        let BoundQuery { mut relation, output } = self.set(&query.body)?;
        let by = sorted_by(&Tail::of(query), &output)?;
        if !by.is_empty() {
            relation = Relation::Sort { input: Box::new(relation), by };
        }
        Ok(BoundQuery { relation: limited(query.limit_clause.as_ref(), relation)?, output })
    }

    fn set(&mut self, body: &'a SetExpr) -> Result<BoundQuery> {
        match body {
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::Distinct | SetQuantifier::None => false,
                    _ => return Err(Unbound::NotYet),
                };
                let operation = match op {
                    SetOperator::Union => SetOperation::Union,
                    SetOperator::Intersect => SetOperation::Intersect,
                    SetOperator::Except => SetOperation::Except,
                    SetOperator::Minus => return Err(Unbound::NotYet),
                };
                let (left, right) = (self.set(left)?, self.set(right)?);
                Ok(self.together(operation, all, left, right)?)
            }
            SetExpr::Query(query) => self.query(query),
            SetExpr::Select(select) => self.side(select),
            _ => Err(Unbound::NotYet),
        }
    }

    fn together(
        &self,
        operation: SetOperation,
        all: bool,
        left: BoundQuery,
        right: BoundQuery,
    ) -> Result<BoundQuery> {
        if left.output.len() != right.output.len() {
            return Err(different_column_counts().into());
        }
        let mut output = Vec::with_capacity(left.output.len());
        for (one, other) in left.output.iter().zip(&right.output) {
            let sides = [value_of(one), value_of(other)];
            let ty = call_types::of_several(sides.iter());
            // Rows of documents compare by their texts, which is not what they are equal by.
            let compared = !all || operation != SetOperation::Union;
            if compared && ty.column == Some(ColumnType::Json) {
                return Err(Unbound::NotYet);
            }
            output.push(OutputColumn { id: self.next(), name: one.name.clone(), origin: None, ty });
        }
        let (left, right) = (self.at_types(left, &output)?, self.at_types(right, &output)?);
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
    fn counted(&self, side: BoundQuery) -> Result<BoundQuery> {
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

    /// A side whose columns have the types of the whole.
    fn at_types(&self, side: BoundQuery, whole: &[OutputColumn]) -> SqlResult<BoundQuery> {
        if side.output.iter().zip(whole).all(|(column, whole)| fits(&column.ty, &whole.ty)) {
            return Ok(side);
        }
        let mut output = side.output;
        let mut columns = Vec::with_capacity(output.len());
        for (column, whole) in output.iter_mut().zip(whole) {
            let value = converted(value_of(column), whole.ty)?;
            (column.id, column.ty) = (self.next(), value.ty);
            columns.push((column.id, value));
        }
        let relation = Relation::Map { input: Box::new(side.relation), columns };
        Ok(BoundQuery { relation, output })
    }
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

/// What the whole is sorted by: its columns, by name or place.
fn sorted_by(tail: &Tail, output: &[OutputColumn]) -> Result<Vec<SortKey>> {
    let named: Vec<(&str, &ColumnId)> =
        output.iter().map(|column| (column.name.as_str(), &column.id)).collect();
    let key = |by: &OrderByExpr| {
        let at = ordered_by_name(by, &named)?.ok_or(Unbound::NotYet)?;
        let column = output.get(at).ok_or(Unbound::NotYet)?.id;
        Ok(SortKey { column, descending: by.options.asc == Some(false) })
    };
    tail.orders()?.iter().map(key).collect()
}

fn value_of(column: &OutputColumn) -> Scalar {
    Scalar { node: Node::Column(column.id), ty: column.ty }
}
