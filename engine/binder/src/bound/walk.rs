//! Walks over the expressions of bound queries. It changes no relation's shape and no expression's type.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use syntax::names::TableName;

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
    /// The same query with these in the place of its parameters.
    pub fn with_values(&self, values: &[Scalar]) -> BoundQuery {
        self.clone().replaced(&|node, _| match node {
            Node::Parameter(place) => values.get(usize::from(*place)).cloned(),
            _ => None,
        })
    }

    fn replaced(self, by: Replacement) -> BoundQuery {
        let BoundQuery { relation, output } = self;
        let Ok(relation) =
            relation.try_map(&mut |scalar| Ok::<_, Infallible>(scalar.replaced(by, true)));
        BoundQuery { relation, output }
    }
}

impl BoundQuery {
    /// The tables that it reads, queries within it included, each once.
    pub fn tables(&self) -> BTreeSet<&TableName> {
        let mut tables = BTreeSet::new();
        self.collect_tables(&mut tables);
        tables
    }

    fn collect_tables<'q>(&'q self, tables: &mut BTreeSet<&'q TableName>) {
        self.relation.for_each(&mut |relation| {
            if let Relation::Scan(scan) = relation {
                tables.insert(&scan.table);
            }
            for scalar in relation.scalars() {
                scalar.for_each(&mut |part| {
                    if let Some(query) = part.query() {
                        query.collect_tables(tables);
                    }
                });
            }
        });
    }

    /// The columns around it that it reads.
    pub fn outer_columns(&self) -> Vec<ColumnId> {
        self.relation.outer_columns()
    }

    fn collect_outer(&self, read: &mut Vec<ColumnId>) {
        self.relation.collect_outer(read);
    }
}

impl Relation {
    /// The columns around its query that it reads.
    pub fn outer_columns(&self) -> Vec<ColumnId> {
        let mut read = Vec::new();
        self.collect_outer(&mut read);
        read
    }

    fn collect_outer(&self, read: &mut Vec<ColumnId>) {
        self.for_each(&mut |relation| {
            relation.scalars().into_iter().for_each(|scalar| scalar.collect_outer(read));
        });
    }
}

/// What stands in the place of a node, if another expression does; and whether the node is one of a query within.
type Replacement<'r> = &'r dyn Fn(&Node, bool) -> Option<Scalar>;

impl Scalar {
    /// The same expression with others in the place of columns, also where queries in it read them.
    pub fn with_columns(self, columns: &HashMap<ColumnId, Scalar>) -> Scalar {
        self.replaced(
            &|node, within| match (node, within) {
                (Node::Column(id), false) => columns.get(id).cloned(),
                (Node::Outer(id), true) => columns.get(id).cloned().map(Scalar::seen_within),
                _ => None,
            },
            false,
        )
    }

    fn replaced(self, by: Replacement, within: bool) -> Scalar {
        if let Some(other) = by(&self.node, within) {
            return other;
        }
        let Ok(Scalar { node, ty }) =
            self.try_map(&mut |part| Ok::<_, Infallible>(part.replaced(by, within)));
        let whole = |query: Box<BoundQuery>| Box::new(query.replaced(by));
        let node = match node {
            Node::Query(query) => Node::Query(whole(query)),
            Node::Exists { query, negated } => Node::Exists { query: whole(query), negated },
            Node::InQuery { values, query, negated } => {
                Node::InQuery { values, query: whole(query), negated }
            }
            node => node,
        };
        Scalar { node, ty }
    }

    /// What it is computed from, not what queries in it are.
    pub fn parts(&self) -> Vec<&Scalar> {
        match &self.node {
            Node::Column(_)
            | Node::Outer(_)
            | Node::Aggregate(_)
            | Node::Window(_)
            | Node::Literal(_)
            | Node::Parameter(_)
            | Node::Query(_)
            | Node::Exists { .. } => Vec::new(),
            Node::InQuery { values, .. } => values.iter().collect(),
            Node::Call { args, .. } => args.iter().collect(),
            Node::Compare { left, right, .. } | Node::Logic { left, right, .. } => {
                vec![left, right]
            }
            Node::Not(value)
            | Node::Convert(value)
            | Node::IsNull { value, .. }
            | Node::IsTruth { value, .. } => vec![value],
            Node::In { value, list, .. } => std::iter::once(&**value).chain(list).collect(),
            Node::Like { text, pattern, .. } => vec![text, pattern],
            Node::Case { branches, otherwise } => {
                let branches = branches.iter().flat_map(|(when, then)| [when, then]);
                branches.chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// The query that it is a value of.
    pub fn query(&self) -> Option<&BoundQuery> {
        match &self.node {
            Node::Query(query) | Node::Exists { query, .. } | Node::InQuery { query, .. } => {
                Some(query)
            }
            _ => None,
        }
    }

    /// Whether a query is a part of it.
    pub fn has_query(&self) -> bool {
        self.has(&|node| {
            matches!(node, Node::Query(_) | Node::Exists { .. } | Node::InQuery { .. })
        })
    }

    /// Looks at it and at all that it is computed from, not into queries in it.
    pub fn for_each<'s>(&'s self, look: &mut impl FnMut(&'s Scalar)) {
        look(self);
        self.parts().into_iter().for_each(|part| part.for_each(look));
    }

    /// Whether a part of it, or itself, is such; not within queries in it.
    pub fn has(&self, is_such: &impl Fn(&Node) -> bool) -> bool {
        is_such(&self.node) || self.parts().into_iter().any(|part| part.has(is_such))
    }

    /// Whether an aggregate is a part of it.
    pub fn has_aggregates(&self) -> bool {
        self.has(&|node| matches!(node, Node::Aggregate(_)))
    }

    /// Whether it reads one of these aggregates and windows, or a query in it does.
    pub fn reads(&self, ids: &[ColumnId]) -> bool {
        let is_one = |node: &Node| matches!(node, Node::Aggregate(id) | Node::Window(id) if ids.contains(id));
        let mut outer = Vec::new();
        self.collect_outer(&mut outer);
        self.has(&is_one) || outer.iter().any(|id| ids.contains(id))
    }

    /// The columns that it reads, those among them that queries in it read.
    pub fn columns(&self) -> Vec<ColumnId> {
        let mut read = Vec::new();
        self.for_each(&mut |part| match &part.node {
            Node::Column(id) | Node::Aggregate(id) | Node::Window(id) | Node::Outer(id) => {
                read.push(*id);
            }
            _ => read.extend(part.query().into_iter().flat_map(BoundQuery::outer_columns)),
        });
        read
    }

    fn collect_outer(&self, read: &mut Vec<ColumnId>) {
        self.for_each(&mut |part| match &part.node {
            Node::Outer(id) => read.push(*id),
            _ => part.query().into_iter().for_each(|query| query.collect_outer(read)),
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
        self.seen_beside(&|_| true)
    }

    /// The same expression as one of a query that has some of the columns, where others are columns around.
    pub fn seen_beside(self, is_around: &dyn Fn(ColumnId) -> bool) -> Scalar {
        let Ok(Scalar { node, ty }) =
            self.try_map(&mut |part| Ok::<_, Infallible>(part.seen_beside(is_around)));
        let node = match node {
            Node::Column(id) | Node::Aggregate(id) | Node::Window(id) if is_around(id) => {
                Node::Outer(id)
            }
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
    /// The rows that it is computed from, those of derived tables and of sides of set operations among them.
    pub fn inputs(&self) -> Vec<&Relation> {
        match self {
            Relation::OneRow | Relation::Scan(_) | Relation::Last { .. } => Vec::new(),
            Relation::Join { left, right, .. } => vec![left, right],
            Relation::Filter { input, .. }
            | Relation::Group { input, .. }
            | Relation::Windows { input, .. }
            | Relation::Distinct { input }
            | Relation::Map { input, .. }
            | Relation::Sort { input, .. }
            | Relation::Limit { input, .. } => vec![input],
            Relation::Set { left, right, .. } => vec![&left.relation, &right.relation],
            Relation::Derived { query, .. } => vec![&query.relation],
            Relation::Recursive { first, next, .. } => vec![&first.relation, &next.relation],
        }
    }

    /// Its own expressions.
    pub fn scalars(&self) -> Vec<&Scalar> {
        match self {
            Relation::OneRow
            | Relation::Scan(_)
            | Relation::Distinct { .. }
            | Relation::Set { .. }
            | Relation::Derived { .. }
            | Relation::Recursive { .. }
            | Relation::Last { .. }
            | Relation::Sort { .. }
            | Relation::Limit { .. } => Vec::new(),
            Relation::Join { on, .. } => on.iter().collect(),
            Relation::Filter { condition, .. } => vec![condition],
            Relation::Group { keys, aggregates, .. } => {
                let keys = keys.iter().map(|(_, key)| key);
                let calls = aggregates.iter().flat_map(|(_, call)| {
                    call.args.iter().chain(call.order.iter().map(|(by, _)| by))
                });
                keys.chain(calls).collect()
            }
            Relation::Windows { calls, .. } => {
                let parts = calls.iter().flat_map(|(_, call)| {
                    let order = call.order.iter().map(|(by, _)| by);
                    call.args.iter().chain(&call.partition).chain(order)
                });
                parts.collect()
            }
            Relation::Map { columns, .. } => columns.iter().map(|(_, scalar)| scalar).collect(),
        }
    }

    /// Looks at it and at all rows that it is computed from.
    pub fn for_each<'r>(&'r self, look: &mut impl FnMut(&'r Relation)) {
        look(self);
        self.inputs().into_iter().for_each(|input| input.for_each(look));
    }

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
