// SPDX-License-Identifier: Apache-2.0
//! The structure of a graph: nodes and edges, without any meaning: pure.
//!
//! Invariants: an edge joins two different nodes of the graph, at most one for each pair in each direction. Cycles
//! can be made by adding edges; [`Nodes::order`] finds them.

use std::collections::{BTreeMap, HashMap, HashSet};

/// Names a node; never reused. Greater keys were made later.
pub type NodeKey = u64;

/// Edge data: ports of both ends and the kind of the edge, as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// `from_port`.
    pub from_port: u8,
    /// `to_port`.
    pub to_port: u8,
    /// `type`.
    pub kind: u8,
}

/// An edge or a node that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

#[derive(Clone, Debug)]
struct Node<C> {
    content: C,
    after: Vec<(NodeKey, Edge)>,
    copy_of: Option<NodeKey>,
}

/// The nodes of a graph.
#[derive(Clone, Debug)]
pub struct Nodes<C> {
    list: BTreeMap<NodeKey, Node<C>>,
}

impl<C> Default for Nodes<C> {
    fn default() -> Self {
        Self { list: BTreeMap::new() }
    }
}

impl<C> Nodes<C> {
    /// Adds a node after others.
    pub fn add(&mut self, key: NodeKey, content: C, after: &[(NodeKey, Edge)]) -> Result<(), Impossible> {
        let mut kept: Vec<(NodeKey, Edge)> = Vec::with_capacity(after.len());
        for &(ahead, edge) in after {
            if !self.list.contains_key(&ahead) || kept.iter().any(|&(other, _)| other == ahead) {
                return Err(Impossible);
            }
            kept.push((ahead, edge));
        }
        self.list.insert(
            key,
            Node {
                content,
                after: kept,
                copy_of: None,
            },
        );
        Ok(())
    }

    /// Removes a node and its edges.
    pub fn remove(&mut self, key: NodeKey) -> Option<C> {
        let node = self.list.remove(&key)?;
        for other in self.list.values_mut() {
            other.after.retain(|&(ahead, _)| ahead != key);
        }
        Some(node.content)
    }

    /// Removes everything.
    pub fn take_all(&mut self) -> Vec<(NodeKey, C)> {
        std::mem::take(&mut self.list)
            .into_iter()
            .map(|(key, node)| (key, node.content))
            .collect()
    }

    /// Adds an edge.
    pub fn connect(&mut self, from: NodeKey, to: NodeKey, edge: Edge) -> Result<(), Impossible> {
        if from == to || !self.list.contains_key(&from) {
            return Err(Impossible);
        }
        let after = &mut self.list.get_mut(&to).ok_or(Impossible)?.after;
        if after.iter().any(|&(ahead, _)| ahead == from) {
            return Err(Impossible);
        }
        after.push((from, edge));
        Ok(())
    }

    /// Removes an edge, which must be there with this data.
    pub fn disconnect(&mut self, from: NodeKey, to: NodeKey, edge: Edge) -> Result<(), Impossible> {
        let after = &mut self.list.get_mut(&to).ok_or(Impossible)?.after;
        let place = after
            .iter()
            .position(|&other| other == (from, edge))
            .ok_or(Impossible)?;
        after.remove(place);
        Ok(())
    }

    /// What a node holds.
    pub fn get(&self, key: NodeKey) -> Option<&C> {
        self.list.get(&key).map(|node| &node.content)
    }

    /// What a node holds, to be changed.
    pub fn get_mut(&mut self, key: NodeKey) -> Option<&mut C> {
        self.list.get_mut(&key).map(|node| &mut node.content)
    }

    /// All nodes, in the order in which they were made.
    pub fn keys(&self) -> Vec<NodeKey> {
        self.list.keys().copied().collect()
    }

    /// The nodes that depend on none.
    pub fn roots(&self) -> Vec<NodeKey> {
        self.list
            .iter()
            .filter(|(_, node)| node.after.is_empty())
            .map(|(&key, _)| key)
            .collect()
    }

    /// All edges: from, to, data.
    pub fn edges(&self) -> Vec<(NodeKey, NodeKey, Edge)> {
        let of = |(&to, node): (&NodeKey, &Node<C>)| {
            node.after
                .iter()
                .map(move |&(from, edge)| (from, to, edge))
                .collect::<Vec<_>>()
        };
        self.list.iter().flat_map(of).collect()
    }

    /// The nodes that a node depends on, with the data of the edges.
    pub fn ahead_of(&self, key: NodeKey) -> Vec<(NodeKey, Edge)> {
        self.list.get(&key).map(|node| node.after.clone()).unwrap_or_default()
    }

    /// The nodes that a node depends on.
    pub fn parents(&self, key: NodeKey) -> Vec<NodeKey> {
        self.ahead_of(key).into_iter().map(|(key, _)| key).collect()
    }

    /// All nodes that come before any of these, and these.
    pub fn ahead_of_all(&self, keys: impl IntoIterator<Item = NodeKey>) -> HashSet<NodeKey> {
        let mut found = HashSet::new();
        let mut open: Vec<NodeKey> = keys.into_iter().collect();
        while let Some(key) = open.pop() {
            if let Some(node) = self.list.get(&key)
                && found.insert(key)
            {
                open.extend(node.after.iter().map(|&(ahead, _)| ahead));
            }
        }
        found
    }

    /// The nodes that depend on a node, with the data of the edges.
    pub fn behind(&self, key: NodeKey) -> Vec<(NodeKey, Edge)> {
        let edges = self.edges().into_iter().filter(|&(from, _, _)| from == key);
        edges.map(|(_, to, edge)| (to, edge)).collect()
    }

    /// The node that is a copy of another.
    pub fn copy_of(&self, original: NodeKey) -> Option<NodeKey> {
        self.list
            .iter()
            .find(|(_, node)| node.copy_of == Some(original))
            .map(|(&key, _)| key)
    }

    /// An order in which every node comes after what it depends on; of several that could be next, the one made first.
    /// A node of a cycle if there is one.
    pub fn order(&self) -> Result<Vec<NodeKey>, NodeKey> {
        let mut missing: BTreeMap<NodeKey, usize> =
            self.list.iter().map(|(&key, node)| (key, node.after.len())).collect();
        let mut behind: HashMap<NodeKey, Vec<NodeKey>> = HashMap::new();
        for (from, to, _) in self.edges() {
            behind.entry(from).or_default().push(to);
        }
        let mut order = Vec::with_capacity(missing.len());
        let mut ready: std::collections::BTreeSet<NodeKey> = self.roots().into_iter().collect();
        while let Some(key) = ready.pop_first() {
            missing.remove(&key);
            order.push(key);
            for to in behind.remove(&key).unwrap_or_default() {
                if let Some(count) = missing.get_mut(&to) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert(to);
                    }
                }
            }
        }
        match missing.first_key_value() {
            None => Ok(order),
            Some((&key, _)) => Err(key),
        }
    }

    /// A copy with new keys from `next`, and contents from `content`. Order of making is kept.
    pub fn copy(&self, mut next: impl FnMut() -> NodeKey, mut content: impl FnMut(NodeKey, &C) -> C) -> Self {
        let keys: HashMap<NodeKey, NodeKey> = self.list.keys().map(|&key| (key, next())).collect();
        let copied = self.list.iter().map(|(key, node)| {
            let after = node.after.iter().map(|(ahead, edge)| (keys[ahead], *edge)).collect();
            (
                keys[key],
                Node {
                    content: content(keys[key], &node.content),
                    after,
                    copy_of: Some(*key),
                },
            )
        });
        Self { list: copied.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chain() -> Nodes<&'static str> {
        let mut nodes = Nodes::default();
        nodes.add(1, "a", &[]).expect("possible");
        nodes.add(2, "b", &[(1, Edge::default())]).expect("possible");
        nodes
            .add(3, "c", &[(1, Edge::default()), (2, Edge::default())])
            .expect("possible");
        nodes
    }

    #[test]
    fn impossible_edges_are_refused() {
        let mut nodes = chain();
        let plain = Edge::default();
        assert_eq!(nodes.add(4, "d", &[(9, plain)]), Err(Impossible));
        assert_eq!(nodes.add(4, "d", &[(1, plain), (1, plain)]), Err(Impossible));
        assert_eq!(nodes.connect(1, 1, plain), Err(Impossible));
        assert_eq!(nodes.connect(1, 2, plain), Err(Impossible), "there already");
        assert_eq!(nodes.connect(1, 9, plain), Err(Impossible));
        assert_eq!(nodes.disconnect(2, 1, plain), Err(Impossible));
        assert_eq!(nodes.disconnect(1, 2, Edge { kind: 1, ..plain }), Err(Impossible));
        assert_eq!(nodes.keys(), [1, 2, 3]);
    }

    #[test]
    fn cycle_is_found_and_can_be_undone() {
        let mut nodes = chain();
        nodes.connect(3, 1, Edge::default()).expect("possible");
        assert!(nodes.order().is_err());
        nodes.disconnect(3, 1, Edge::default()).expect("is there");
        assert_eq!(nodes.order(), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn removal_takes_the_edges_along() {
        let mut nodes = chain();
        assert_eq!(nodes.remove(2), Some("b"));
        assert_eq!(nodes.parents(3), [1]);
        assert_eq!(nodes.behind(1), [(3, Edge::default())]);
        assert_eq!(nodes.roots(), [1]);
    }

    #[test]
    fn everything_ahead_is_found_through_other_nodes() {
        let mut nodes = chain();
        nodes.add(4, "d", &[]).expect("possible");
        nodes.connect(3, 1, Edge::default()).expect("possible");
        let found = |keys: &[NodeKey]| {
            let mut found: Vec<_> = nodes.ahead_of_all(keys.iter().copied()).into_iter().collect();
            found.sort_unstable();
            found
        };
        assert_eq!(found(&[2]), [1, 2, 3], "a cycle ends the search");
        assert_eq!((found(&[4]), found(&[9])), (vec![4], vec![]));
    }

    #[test]
    fn copy_has_the_same_shape_and_knows_its_originals() {
        let mut next = 10;
        let copy = chain().copy(
            || {
                next += 1;
                next
            },
            |_, content| content,
        );
        assert_eq!(copy.edges().len(), 3);
        let of = |original| copy.copy_of(original).expect("copied");
        assert_eq!(copy.parents(of(3)), [of(1), of(2)]);
        assert_eq!(copy.get(of(2)), Some(&"b"));
    }

    proptest! {
        /// The order of any graph without cycles holds every node once, after what it depends on.
        #[test]
        fn order_respects_every_edge(edges in proptest::collection::vec((0..12u64, 0..12u64), 0..40)) {
            let mut nodes = Nodes::default();
            for key in 0..12 { nodes.add(key, (), &[]).expect("possible"); }
            let mut has_backward = false;
            for (from, to) in edges {
                // Numbered so that forward edges make no cycle, whatever the order in which they are added.
                if from < to { let _ = nodes.connect(11 - from, 11 - to, Edge::default()); }
                if from == 0 && to == 11 { has_backward |= nodes.connect(0, 11, Edge::default()).is_ok(); }
            }
            match nodes.order() {
                Ok(order) => {
                    prop_assert_eq!(order.len(), 12);
                    for (from, to, _) in nodes.edges() {
                        let place = |key| order.iter().position(|&other| other == key);
                        prop_assert!(place(from) < place(to));
                    }
                }
                Err(_) => prop_assert!(has_backward),
            }
        }
    }
}
