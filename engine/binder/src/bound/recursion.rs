//! WITH RECURSIVE bound: a UNION whose first side begins, and whose second one is computed of the rows that came last.
//!
//! The columns have the types of the first side, and may be NULL.

use std::ops::ControlFlow;

use sqlparser::ast::{ObjectName, Query, SetExpr, SetOperator, SetQuantifier, Visitor};
use syntax::names::parts;
use syntax::walk::{Part, finds};
use types::{ColumnType, Value};
use values::error::{SqlResult, different_column_counts, unsupported, wrong_name_count};
use values::mysql_type::MysqlType;

use super::arguments;
use super::call_types::arrow;
use super::literal;
use super::query::{Binder, Named};
use super::set_operations::{convert_where_computed, converted_to};
use super::tree::{BoundQuery, ColumnId, Node, OutputColumn, Relation, Scalar};
use crate::result_type::TEXT_LENGTH;

/// Whether a query names a table so, which may be itself.
pub(super) fn names_itself(query: &impl Part, name: &str) -> bool {
    struct Named<'a>(&'a str);
    impl Visitor for Named<'_> {
        type Break = ();

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
            match &parts(relation)[..] {
                [one] if one == self.0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    finds(query, &mut Named(name))
}

impl<'a> Binder<'a> {
    /// A query of WITH RECURSIVE that names itself.
    pub(super) fn recursive(
        &mut self,
        name: &str,
        columns: &[String],
        query: &'a Query,
    ) -> SqlResult<BoundQuery> {
        let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } =
            &*query.body
        else {
            return Err(unsupported("a recursive query that is no UNION"));
        };
        let plain =
            query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
        if !plain {
            let what = "a recursive query with WITH, ORDER BY or LIMIT of its own";
            return Err(unsupported(what));
        }
        if names_itself(&**left, name) {
            return Err(unsupported("a recursive query of several parts that name it"));
        }
        let first = self.set(left)?;
        if !columns.is_empty() && columns.len() != first.output.len() {
            return Err(wrong_name_count());
        }
        let mut output = first.output.clone();
        for (at, column) in output.iter_mut().enumerate() {
            (column.id, column.origin) = (self.next(), None);
            // What begins with NULL alone is a text.
            if column.ty.column.is_none() {
                column.ty = MysqlType::of_column(ColumnType::Varchar(TEXT_LENGTH));
            }
            if let Some(name) = columns.get(at) {
                column.name.clone_from(name);
            }
        }
        let first_id = output.first().map_or(0, |column| column.id.0);
        let unique = format!("{name}#{first_id}");
        self.named.push(Named::Last {
            name: name.to_owned(),
            unique: unique.clone(),
            output: output.clone(),
        });
        let next = self.set(right);
        self.named.pop();
        let next = next?;
        if next.output.len() != output.len() {
            return Err(different_column_counts());
        }
        let (first, next) = (self.cast_to(first, &output)?, self.cast_to(next, &output)?);
        let all = *set_quantifier == SetQuantifier::All;
        let ids: Vec<ColumnId> = output.iter().map(|column| column.id).collect();
        let (first, next) = (Box::new(first), Box::new(next));
        let relation = Relation::Recursive { name: unique, all, first, next, columns: ids };
        Ok(BoundQuery { relation, output })
    }

    /// A side at the types of the whole, as CAST takes values to them: what has more digits is rounded.
    fn cast_to(&self, side: BoundQuery, whole: &[OutputColumn]) -> SqlResult<BoundQuery> {
        let mut side = side;
        convert_where_computed(self, &mut side, whole, cast)?;
        let BoundQuery { relation, mut output } = side;
        let mut columns = Vec::with_capacity(output.len());
        for (column, whole) in output.iter_mut().zip(whole) {
            let value = Scalar { node: Node::Column(column.id), ty: column.ty };
            let value =
                if arrow(&value.ty) == arrow(&whole.ty) { value } else { cast(value, whole.ty)? };
            (column.id, column.ty) = (self.next(), value.ty);
            columns.push((column.id, value));
        }
        let side =
            BoundQuery { relation: Relation::Map { input: Box::new(relation), columns }, output };
        converted_to(self, side, whole)
    }

    /// The rows that came last, at one place that names them.
    pub(super) fn last_rows(&self, name: String, mut output: Vec<OutputColumn>) -> BoundQuery {
        for column in &mut output {
            column.id = self.next();
        }
        let columns = output.iter().map(|column| column.id).collect();
        BoundQuery { relation: Relation::Last { name, columns }, output }
    }
}

/// A value as CAST makes it one of a type.
fn cast(value: Scalar, ty: MysqlType) -> SqlResult<Scalar> {
    let number = |n: u8| literal::of(Value::Int(i64::from(n)));
    let (function, digits) = match ty.column {
        Some(ColumnType::Int { unsigned: false, .. }) => ("cast_signed", Vec::new()),
        Some(ColumnType::Int { unsigned: true, .. }) => ("cast_unsigned", Vec::new()),
        Some(ColumnType::Decimal { precision, scale }) => {
            ("cast_decimal", vec![number(precision), number(scale)])
        }
        Some(ColumnType::Double) => ("cast_double", Vec::new()),
        Some(ColumnType::Date) => ("cast_date", Vec::new()),
        Some(ColumnType::DateTime(digits)) => ("cast_datetime", vec![number(digits)]),
        Some(ColumnType::Time(digits)) => ("cast_time", vec![number(digits)]),
        _ => return Ok(value),
    };
    let args = std::iter::once(value).chain(digits).collect();
    arguments::call(function, arguments::taken_by(function, args)?)
}
