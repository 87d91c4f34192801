//! A directed graph whose walks always visit in the same order (rsm.md 2.4).
//!
//! A graph is valid when exactly one vertex has no incoming edge (the root) and no path leads back to its start. Walks
//! check that first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

/// Names a vertex of one graph. Never used again after the vertex is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VertexId(usize);

/// Why a graph cannot be walked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No vertex, or several, without an incoming edge.
    #[error("no single root found: {0} vertices have no incoming edge; connect every vertex below one root")]
    Root(usize),
    /// A path leads back to its start.
    #[error("cycle found through {0}; remove one of the dependencies")]
    Cycle(String),
    /// An edge leads from a vertex to itself.
    #[error("self-cycle found: {0}; a vertex cannot depend on itself")]
    SelfCycle(String),
}

/// What a visitor says of one vertex (the seed's `ErrContinue`, `ErrWait`, `ErrStop`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sentinel {
    /// This one is fine, go on.
    Continue,
    /// This one is on its way, go no deeper.
    Wait,
    /// This one is to be changed now, go no deeper.
    Stop,
}

/// Vertices and the edges between them. An edge leads from a vertex to what must be done before it.
#[derive(Clone, Debug)]
pub struct Graph<V> {
    vertices: BTreeMap<VertexId, V>,
    edges: BTreeSet<(VertexId, VertexId)>,
    next: usize,
}

impl<V> Default for Graph<V> {
    fn default() -> Graph<V> {
        Graph { vertices: BTreeMap::new(), edges: BTreeSet::new(), next: 0 }
    }
}

impl<V> Graph<V> {
    /// Adds a vertex without edges.
    pub fn add(&mut self, vertex: V) -> VertexId {
        let id = VertexId(self.next);
        self.next += 1;
        self.vertices.insert(id, vertex);
        id
    }

    /// Removes a vertex and its edges.
    pub fn remove(&mut self, id: VertexId) -> Option<V> {
        self.edges.retain(|(from, to)| *from != id && *to != id);
        self.vertices.remove(&id)
    }

    /// Adds an edge between two vertices of this graph; `false` when one of them is not.
    pub fn connect(&mut self, from: VertexId, to: VertexId) -> bool {
        let known = self.vertices.contains_key(&from) && self.vertices.contains_key(&to);
        if known {
            self.edges.insert((from, to));
        }
        known
    }

    /// Adds a vertex below the root; `None`, and nothing added, when there is no single root.
    pub fn add_below_root(&mut self, vertex: V) -> Option<VertexId> {
        let root = self.root().ok()?;
        let id = self.add(vertex);
        self.connect(root, id);
        Some(id)
    }

    /// Removes an edge.
    pub fn disconnect(&mut self, from: VertexId, to: VertexId) -> bool {
        self.edges.remove(&(from, to))
    }

    /// A vertex.
    pub fn get(&self, id: VertexId) -> Option<&V> {
        self.vertices.get(&id)
    }

    /// A vertex, to be changed.
    pub fn get_mut(&mut self, id: VertexId) -> Option<&mut V> {
        self.vertices.get_mut(&id)
    }

    /// All vertices, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (VertexId, &V)> {
        self.vertices.iter().map(|(id, vertex)| (*id, vertex))
    }

    /// Vertices that `id` leads to.
    pub fn successors(&self, id: VertexId) -> impl Iterator<Item = VertexId> {
        self.edges.iter().filter(move |(from, _)| *from == id).map(|(_, to)| *to)
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// Whether there is no vertex.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    /// The one vertex without an incoming edge.
    pub fn root(&self) -> Result<VertexId, Invalid> {
        let entered: BTreeSet<VertexId> = self.edges.iter().map(|(_, to)| *to).collect();
        let roots: Vec<VertexId> = self.vertices.keys().copied().filter(|id| !entered.contains(id)).collect();
        match roots.as_slice() {
            [root] => Ok(*root),
            others => Err(Invalid::Root(others.len())),
        }
    }
}

impl<V: Display> Graph<V> {
    /// Whether the graph can be walked.
    pub fn validate(&self) -> Result<VertexId, Invalid> {
        if let Some((from, _)) = self.edges.iter().find(|(from, to)| from == to) {
            return Err(Invalid::SelfCycle(self.name(*from)));
        }
        let root = self.root()?;
        self.visit_all().map(|_| root)
    }

    /// Every vertex, each before all that lead to it: dependencies first, the root last. Independent vertices are in
    /// the order of their text, so that the same graph always gives the same walk.
    pub fn dependencies_first(&self) -> Result<Vec<VertexId>, Invalid> {
        self.validate()?;
        self.visit_all()
    }

    /// The other way round: the root first.
    pub fn root_first(&self) -> Result<Vec<VertexId>, Invalid> {
        let mut order = self.dependencies_first()?;
        order.reverse();
        Ok(order)
    }

    /// Levels by distance from the root.
    pub fn levels(&self) -> Result<Vec<Vec<VertexId>>, Invalid> {
        let root = self.validate()?;
        let mut seen = BTreeSet::from([root]);
        let mut levels = vec![vec![root]];
        while let Some(last) = levels.last() {
            let mut next: Vec<VertexId> = Vec::new();
            for id in last.iter().flat_map(|id| self.successors(*id)) {
                if seen.insert(id) {
                    next.push(id);
                }
            }
            if next.is_empty() {
                break;
            }
            self.by_name(&mut next);
            levels.push(next);
        }
        Ok(levels)
    }

    /// Visits level by level. Every vertex of a level is visited, whatever the visitor says of its mates; the next level
    /// only when all of this one said [`Sentinel::Continue`] (rsm.md 2.4: what keeps a batch together).
    pub fn walk_levels(&self, mut visit: impl FnMut(&V) -> Sentinel) -> Result<Sentinel, Invalid> {
        for level in self.levels()? {
            let answers = level.iter().filter_map(|id| self.get(*id)).map(&mut visit);
            match answers
                .fold(Sentinel::Continue, |last, answer| if answer == Sentinel::Continue { last } else { answer })
            {
                Sentinel::Continue => {}
                other => return Ok(other),
            }
        }
        Ok(Sentinel::Continue)
    }

    fn visit_all(&self) -> Result<Vec<VertexId>, Invalid> {
        let mut starts: Vec<VertexId> = self.vertices.keys().copied().collect();
        self.by_name(&mut starts);
        let mut walk = Walk { order: Vec::new(), open: BTreeSet::new(), done: BTreeSet::new() };
        for id in starts {
            self.visit(id, &mut walk)?;
        }
        Ok(walk.order)
    }

    fn visit(&self, id: VertexId, walk: &mut Walk) -> Result<(), Invalid> {
        if walk.done.contains(&id) {
            return Ok(());
        }
        if !walk.open.insert(id) {
            return Err(Invalid::Cycle(self.name(id)));
        }
        let mut next: Vec<VertexId> = self.successors(id).collect();
        self.by_name(&mut next);
        for successor in next {
            self.visit(successor, walk)?;
        }
        walk.open.remove(&id);
        walk.done.insert(id);
        walk.order.push(id);
        Ok(())
    }

    fn by_name(&self, ids: &mut [VertexId]) {
        ids.sort_by_cached_key(|id| (self.name(*id), *id));
    }

    fn name(&self, id: VertexId) -> String {
        self.get(id).map(ToString::to_string).unwrap_or_default()
    }
}

struct Walk {
    order: Vec<VertexId>,
    open: BTreeSet<VertexId>,
    done: BTreeSet<VertexId>,
}

/// Equal when the vertices are, in the order of their text, and the edges between them.
impl<V: Display> PartialEq for Graph<V> {
    fn eq(&self, other: &Graph<V>) -> bool {
        let text = |graph: &Graph<V>| {
            let mut vertices: Vec<String> = graph.vertices.values().map(ToString::to_string).collect();
            let mut edges: Vec<(String, String)> =
                graph.edges.iter().map(|(from, to)| (graph.name(*from), graph.name(*to))).collect();
            vertices.sort();
            edges.sort();
            (vertices, edges)
        };
        text(self) == text(other)
    }
}

/// `| vertex, vertex -> dependency, …` in the order of a walk from the root.
impl<V: Display> Display for Graph<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("|")?;
        for id in self.root_first().map_err(|_| fmt::Error)? {
            let below: Vec<String> = self.successors(id).map(|to| self.name(to)).collect();
            match below.as_slice() {
                [] => write!(f, " {};", self.name(id))?,
                below => write!(f, " {} -> {};", self.name(id), below.join(", "))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&'static str, &'static str)]) -> Graph<&'static str> {
        let mut graph = Graph::default();
        let mut ids = BTreeMap::new();
        for (from, to) in edges {
            for name in [from, to] {
                ids.entry(*name).or_insert_with(|| graph.add(*name));
            }
            graph.connect(ids[from], ids[to]);
        }
        graph
    }

    fn names(graph: &Graph<&'static str>, ids: Vec<VertexId>) -> Vec<&'static str> {
        ids.into_iter().map(|id| *graph.get(id).unwrap()).collect()
    }

    #[test]
    fn dependencies_come_first_and_the_root_last() {
        let graph = graph(&[("root", "b"), ("root", "a"), ("root", "set"), ("set", "b"), ("set", "c")]);
        assert_eq!(names(&graph, graph.dependencies_first().unwrap()), ["a", "b", "c", "set", "root"]);
        assert_eq!(names(&graph, graph.root_first().unwrap()), ["root", "set", "c", "b", "a"]);
    }

    #[test]
    fn levels_are_by_distance_from_the_root() {
        let graph = graph(&[("r", "b"), ("r", "a"), ("a", "c"), ("b", "c"), ("c", "d")]);
        let levels: Vec<Vec<&str>> = graph.levels().unwrap().into_iter().map(|level| names(&graph, level)).collect();
        assert_eq!(levels, [vec!["r"], vec!["a", "b"], vec!["c"], vec!["d"]]);
    }

    #[test]
    fn a_level_is_visited_whole_and_a_deeper_one_only_after_it_agreed() {
        let graph = graph(&[("r", "a"), ("r", "b"), ("a", "c")]);
        let mut visited = Vec::new();
        let end = graph.walk_levels(|name| {
            visited.push(*name);
            if *name == "a" { Sentinel::Stop } else { Sentinel::Continue }
        });
        assert_eq!((end, visited), (Ok(Sentinel::Stop), vec!["r", "a", "b"]));
    }

    #[test]
    fn what_cannot_be_walked_says_why() {
        assert_eq!(Graph::<&str>::default().validate(), Err(Invalid::Root(0)));
        let mut two = Graph::default();
        two.add("a");
        two.add("b");
        assert_eq!(two.validate(), Err(Invalid::Root(2)));
        let mut cycle = graph(&[("r", "a"), ("a", "b"), ("b", "c"), ("c", "a")]);
        assert!(matches!(cycle.validate(), Err(Invalid::Cycle(_))));
        let own = cycle.iter().next().map(|(id, _)| id).unwrap();
        cycle.connect(own, own);
        assert_eq!(cycle.validate(), Err(Invalid::SelfCycle("r".into())));
    }

    #[test]
    fn nothing_is_added_below_a_root_that_is_not_there() {
        let mut graph = Graph::default();
        assert_eq!(graph.add_below_root("a"), None);
        assert!(graph.is_empty());
        graph.add("r");
        assert!(graph.add_below_root("a").is_some());
        assert_eq!(graph.len(), 2);
    }

    #[test]
    fn edges_go_with_their_vertex() {
        let mut graph = graph(&[("r", "a"), ("r", "b"), ("a", "b")]);
        let a = graph.iter().find(|(_, name)| **name == "a").map(|(id, _)| id).unwrap();
        assert_eq!(graph.remove(a), Some("a"));
        assert!(!graph.connect(a, a));
        assert_eq!(graph.to_string(), "| r -> b; b;");
    }

    #[test]
    fn equality_does_not_depend_on_the_order_of_adding() {
        assert_eq!(graph(&[("r", "a"), ("r", "b")]), graph(&[("r", "b"), ("r", "a")]));
        assert_ne!(graph(&[("r", "a"), ("r", "b")]), graph(&[("r", "a"), ("a", "b")]));
    }
}
