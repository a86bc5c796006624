//! Walks over the expressions of bound queries. It changes no relation's shape and no expression's type.

use super::tree::{AggregateCall, BoundQuery, ColumnId, Node, Relation, Scalar, WindowCall};

impl BoundQuery {
    /// The same query with other columns in the place of those around it.
    ///
    /// # Errors
    ///
    /// The first that `map` has.
    pub fn try_map_outer<E>(
        self,
        map: &mut dyn FnMut(ColumnId) -> Result<ColumnId, E>,
    ) -> Result<BoundQuery, E> {
        let relation = self.relation.try_map(&mut |scalar| scalar.try_map_outer(map))?;
        Ok(BoundQuery { relation, output: self.output })
    }
}

impl BoundQuery {
    /// The columns around it that it reads.
    pub fn outer_columns(&self) -> Vec<ColumnId> {
        let mut read = Vec::new();
        _ = self.clone().try_map_outer(&mut |id| {
            read.push(id);
            Ok::<_, std::convert::Infallible>(id)
        });
        read
    }
}

impl Scalar {
    /// Whether it reads one of these aggregates and windows, or a query in it does.
    pub fn reads(&self, ids: &[ColumnId]) -> bool {
        let mut found = self.has(
            &|node| matches!(node, Node::Aggregate(id) | Node::Window(id) if ids.contains(id)),
        );
        _ = self.clone().try_map_outer(&mut |id| {
            found |= ids.contains(&id);
            Ok::<_, std::convert::Infallible>(id)
        });
        found
    }

    /// The columns that it reads, those among them that queries in it read.
    pub fn columns(&self) -> Vec<ColumnId> {
        let mut read = Vec::new();
        self.collect_columns(&mut read);
        read
    }

    fn collect_columns(&self, read: &mut Vec<ColumnId>) {
        match &self.node {
            Node::Column(id) | Node::Aggregate(id) | Node::Window(id) | Node::Outer(id) => {
                read.push(*id);
            }
            Node::Query(query) | Node::Exists { query, .. } | Node::InQuery { query, .. } => {
                read.extend(query.outer_columns());
            }
            _ => {}
        }
        _ = self.clone().try_map(&mut |part: Scalar| {
            part.collect_columns(read);
            Ok::<_, std::convert::Infallible>(part)
        });
    }

    /// The same expression with other columns in the place of those around its query, also in queries within it.
    ///
    /// # Errors
    ///
    /// The first that `map` has.
    pub fn try_map_outer<E>(
        self,
        map: &mut dyn FnMut(ColumnId) -> Result<ColumnId, E>,
    ) -> Result<Scalar, E> {
        let Scalar { node, ty } = self.try_map(&mut |part: Scalar| part.try_map_outer(map))?;
        let node = match node {
            Node::Outer(id) => Node::Outer(map(id)?),
            node => node.try_map_queries(map)?,
        };
        Ok(Scalar { node, ty })
    }

    /// The same expression as one of a query within: columns of its own query are columns around.
    pub fn seen_within(self) -> Scalar {
        let Ok(Scalar { node, ty }) =
            self.try_map(&mut |part| Ok::<_, std::convert::Infallible>(part.seen_within()));
        let node = match node {
            Node::Column(id) | Node::Aggregate(id) | Node::Window(id) => Node::Outer(id),
            node => node,
        };
        Scalar { node, ty }
    }
}

impl Node {
    /// The same with other columns in the place of those around the queries that it has.
    ///
    /// # Errors
    ///
    /// The first that `map` has.
    pub fn try_map_queries<E>(
        self,
        map: &mut dyn FnMut(ColumnId) -> Result<ColumnId, E>,
    ) -> Result<Node, E> {
        Ok(match self {
            Node::Query(query) => Node::Query(Box::new(query.try_map_outer(map)?)),
            Node::Exists { query, negated } => {
                Node::Exists { query: Box::new(query.try_map_outer(map)?), negated }
            }
            Node::InQuery { values, query, negated } => {
                Node::InQuery { values, query: Box::new(query.try_map_outer(map)?), negated }
            }
            node => node,
        })
    }
}

/// What makes another expression of one.
type Map<'m, E> = &'m mut dyn FnMut(Scalar) -> Result<Scalar, E>;

fn each<E>(scalars: Vec<Scalar>, map: Map<E>) -> Result<Vec<Scalar>, E> {
    scalars.into_iter().map(map).collect()
}

fn ordered<E>(order: Vec<(Scalar, bool)>, map: Map<E>) -> Result<Vec<(Scalar, bool)>, E> {
    order.into_iter().map(|(by, descending)| Ok((map(by)?, descending))).collect()
}

impl Relation {
    /// The same rows of other expressions, those of derived tables and of sides of set operations among them.
    ///
    /// # Errors
    ///
    /// The first that `map` has.
    pub fn try_map<E>(self, map: Map<E>) -> Result<Relation, E> {
        let within = |relation: Box<Relation>, map: Map<E>| relation.try_map(map).map(Box::new);
        let whole = |query: Box<BoundQuery>, map: Map<E>| {
            let BoundQuery { relation, output } = *query;
            Ok(Box::new(BoundQuery { relation: relation.try_map(map)?, output }))
        };
        let named = |columns: Vec<(ColumnId, Scalar)>, map: Map<E>| {
            columns.into_iter().map(|(id, scalar)| Ok((id, map(scalar)?))).collect::<Result<_, E>>()
        };
        Ok(match self {
            relation @ (Relation::OneRow | Relation::Scan(_) | Relation::Last { .. }) => relation,
            Relation::Join { kind, left, right, on } => {
                let (left, right) = (within(left, map)?, within(right, map)?);
                Relation::Join { kind, left, right, on: on.map(&mut *map).transpose()? }
            }
            Relation::Filter { input, condition } => {
                Relation::Filter { input: within(input, map)?, condition: map(condition)? }
            }
            Relation::Group { input, keys, aggregates, rollup } => {
                let (input, keys) = (within(input, map)?, named(keys, map)?);
                let call = |(id, call): (ColumnId, AggregateCall)| {
                    let (args, order) = (each(call.args, map)?, ordered(call.order, map)?);
                    Ok((id, AggregateCall { args, order, ..call }))
                };
                let aggregates = aggregates.into_iter().map(call).collect::<Result<_, E>>()?;
                Relation::Group { input, keys, aggregates, rollup }
            }
            Relation::Windows { input, calls } => {
                let input = within(input, map)?;
                let call = |(id, call): (ColumnId, WindowCall)| Ok((id, call.try_map(map)?));
                let calls = calls.into_iter().map(call).collect::<Result<_, E>>()?;
                Relation::Windows { input, calls }
            }
            Relation::Distinct { input } => Relation::Distinct { input: within(input, map)? },
            Relation::Set { operation, all, left, right, columns } => {
                let (left, right) = (whole(left, map)?, whole(right, map)?);
                Relation::Set { operation, all, left, right, columns }
            }
            Relation::Derived { query, alias, lateral } => {
                Relation::Derived { query: whole(query, map)?, alias, lateral }
            }
            Relation::Recursive { name, all, first, next, columns } => {
                let (first, next) = (whole(first, map)?, whole(next, map)?);
                Relation::Recursive { name, all, first, next, columns }
            }
            Relation::Map { input, columns } => {
                Relation::Map { input: within(input, map)?, columns: named(columns, map)? }
            }
            Relation::Sort { input, by } => Relation::Sort { input: within(input, map)?, by },
            Relation::Limit { input, skip, fetch } => {
                Relation::Limit { input: within(input, map)?, skip, fetch }
            }
        })
    }
}

impl WindowCall {
    /// The same call over other expressions.
    ///
    /// # Errors
    ///
    /// The first that `map` has.
    pub fn try_map<E>(self, map: Map<E>) -> Result<WindowCall, E> {
        let (args, partition) = (each(self.args, map)?, each(self.partition, map)?);
        let order = ordered(self.order, map)?;
        Ok(WindowCall { args, partition, order, ..self })
    }
}
