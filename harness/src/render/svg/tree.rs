//! Where the marks of single calls stand: each below the call that caused it, siblings together, and the more apart the
//! further up they part. Rows of many calls are stacked in columns below their callers instead. Places only, no ink.

use super::page::at;

/// Most marks of a row that stand beside each other.
const ABREAST: usize = 81;
/// Most marks of a row.
const ROW: usize = 1_000;
/// Units between marks, at most.
const WIDEST: f64 = 40.0;
/// Units between marks in a stack, at least.
const TIGHTEST: f64 = 6.2;
/// Units between marks in a stack, at most.
const LARGEST: f64 = 18.0;
/// Units that a stack should not grow beyond while its marks may be smaller.
const LOW: f64 = 80.0;
/// Units that a stack grows down, at most.
const DEEPEST: f64 = 260.0;
/// What parts two groups, by the levels between them, in places of one mark.
const GAP: f64 = 0.45;
/// Levels that part further, at most.
const LEVELS: u8 = 3;

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The row and the place in it of the call that caused this one.
    pub(super) parent: Option<(usize, usize)>,
    /// What became of it.
    pub(super) fate: Fate,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// No call yet: the request itself, at a client that tries it several times.
    Request,
    /// It arrived and failed.
    Failed,
    /// It arrived and was answered.
    Answered,
    /// It arrived, and had no end when counting stopped.
    Open,
    /// It was sent and did not arrive.
    Lost,
    /// It is predicted.
    Predicted,
}

/// The rows of one chain, laid out in places of one mark.
#[derive(Debug)]
pub(super) struct Tree {
    /// Places across.
    width: f64,
    /// Places from the left, of the marks in the rows that stand abreast.
    places: Vec<Vec<f64>>,
    /// For the rows below: the column of each mark, as a place from the left, and its number in it from 0.
    stacks: Vec<Vec<(f64, usize)>>,
}

impl Tree {
    /// `None` where there are too many marks, or where it is not known what caused them.
    pub(super) fn of(rows: &[Vec<Mark>]) -> Option<Self> {
        if rows.iter().any(|row| row.len() > ROW) {
            return None;
        }
        let abreast = rows.iter().take_while(|row| row.len() <= ABREAST).count();
        let mut walk = Walk::over(&rows[..abreast]);
        walk.everything();
        let Walk { places, next, .. } = walk;
        let mut stacks = Vec::new();
        for (row, marks) in rows.iter().enumerate().skip(abreast) {
            let mut columns: Vec<((usize, usize), usize)> = Vec::new();
            let mut stack = Vec::new();
            for place in 0..marks.len() {
                let column = column(rows, (row, place), abreast)?;
                // Marks of one caller follow each other.
                match columns.last_mut() {
                    Some((last, number)) if *last == column => *number += 1,
                    _ => columns.push((column, 0)),
                }
                let number = columns.last().map_or(0, |(_, number)| *number);
                stack.push((places[column.0][column.1], number));
            }
            stacks.push(stack);
        }
        Some(Self {
            width: next.max(1.0),
            places,
            stacks,
        })
    }

    /// Units between marks where the whole takes `units`.
    pub(super) fn pitch(&self, units: f64) -> f64 {
        let pitch = units / self.width;
        if self.stacks.is_empty() {
            pitch.min(WIDEST)
        } else {
            pitch
        }
    }

    /// The marks of a row, around the middle of `units` across: units from the left, units from the top of the row, and the
    /// radius. `None` for a stack that would grow too deep.
    pub(super) fn row(&self, row: usize, pitch: f64, units: f64) -> Option<Row> {
        let left = (units - self.width * pitch) / 2.0;
        let middle = |place: f64| left + (place + 0.5) * pitch;
        if let Some(places) = self.places.get(row) {
            let apart = places
                .windows(2)
                .map(|pair| pair[1] - pair[0])
                .fold(f64::INFINITY, f64::min);
            let radius = (0.34 * pitch * apart).min(8.0);
            return Some(Row {
                marks: places.iter().map(|place| (middle(*place), radius)).collect(),
                radius,
                depth: 2.0 * radius,
                has_edges: true,
            });
        }
        let stack = &self.stacks[row - self.places.len()];
        let usable = 0.88 * pitch;
        let most = stack.iter().map(|(_, number)| number + 1).max().unwrap_or(1);
        let (deep, cell) = cells(usable, most);
        let radius = 0.36 * cell;
        let marks: Vec<(f64, f64)> = stack
            .iter()
            .map(|(place, number)| {
                let start = middle(*place) - usable / 2.0;
                let x = start + ((number / deep) as f64 + 0.5) * cell;
                (at(x), ((number % deep) as f64) * cell + radius)
            })
            .collect();
        let depth = marks.iter().map(|(_, y)| y + radius).fold(0.0, f64::max);
        (depth <= DEEPEST).then_some(Row {
            marks,
            radius,
            depth,
            has_edges: false,
        })
    }
}

/// How many marks of a stack stand under each other, and the units from one to the next: as large as may be, and lower than
/// [`LOW`] where that can be had. `usable` are the units across a stack.
fn cells(usable: f64, most: usize) -> (usize, f64) {
    let mut across = 1;
    loop {
        let cell = (usable / across as f64).min(LARGEST);
        let deep = most.div_ceil(across);
        let is_last = usable / ((across + 1) as f64) < TIGHTEST;
        if is_last || (deep as f64) * cell <= LOW {
            return (deep, cell);
        }
        across += 1;
    }
}

/// A row laid out.
#[derive(Debug)]
pub(super) struct Row {
    /// Units from the left and from the top of the row.
    pub(super) marks: Vec<(f64, f64)>,
    /// Units.
    pub(super) radius: f64,
    /// Units from the top to the bottom of the row.
    pub(super) depth: f64,
    /// Whether a line leads from each caller to its calls.
    pub(super) has_edges: bool,
}

/// The caller above all stacks whose column a mark stands in.
fn column(rows: &[Vec<Mark>], mark: (usize, usize), abreast: usize) -> Option<(usize, usize)> {
    let mut above = mark;
    while above.0 >= abreast {
        above = rows[above.0][above.1].parent.filter(|parent| parent.0 < above.0)?;
    }
    Some(above)
}

/// A walk down the tree, from the left, that gives each mark its place.
struct Walk {
    children: Vec<Vec<Vec<(usize, usize)>>>,
    roots: Vec<(usize, usize)>,
    /// Levels below a mark at which the tree parts.
    levels: Vec<Vec<u8>>,
    places: Vec<Vec<f64>>,
    next: f64,
}

impl Walk {
    fn over(rows: &[Vec<Mark>]) -> Self {
        let mut children: Vec<Vec<Vec<_>>> = rows.iter().map(|row| vec![Vec::new(); row.len()]).collect();
        let mut roots = Vec::new();
        for (row, marks) in rows.iter().enumerate() {
            for (place, mark) in marks.iter().enumerate() {
                let parent = mark.parent.filter(|parent| parent.0 < row);
                match parent.and_then(|(above, at)| children.get_mut(above)?.get_mut(at)) {
                    Some(siblings) => siblings.push((row, place)),
                    None => roots.push((row, place)),
                }
            }
        }
        let mut levels: Vec<Vec<u8>> = rows.iter().map(|row| vec![0; row.len()]).collect();
        for row in (0..rows.len()).rev() {
            for place in 0..rows[row].len() {
                let below = &children[row][place];
                let deepest = below.iter().map(|(row, place)| levels[*row][*place]).max().unwrap_or(0);
                levels[row][place] = deepest.saturating_add(u8::from(below.len() > 1));
            }
        }
        Self {
            children,
            roots,
            levels,
            places: rows.iter().map(|row| vec![0.0; row.len()]).collect(),
            next: 0.0,
        }
    }

    fn everything(&mut self) {
        let roots = std::mem::take(&mut self.roots);
        for (number, root) in roots.iter().enumerate() {
            if number > 0 {
                self.next += GAP * f64::from(LEVELS);
            }
            self.mark(*root);
        }
    }

    fn mark(&mut self, (row, place): (usize, usize)) {
        let below = std::mem::take(&mut self.children[row][place]);
        let parted = self.levels[row][place].saturating_sub(1).min(LEVELS);
        for (number, child) in below.iter().enumerate() {
            if number > 0 {
                self.next += GAP * f64::from(parted);
            }
            self.mark(*child);
        }
        let of = |mark: Option<&(usize, usize)>| mark.map(|(row, place)| self.places[*row][*place]);
        let ends = of(below.first()).zip(of(below.last()));
        self.places[row][place] = if let Some((first, last)) = ends {
            f64::midpoint(first, last)
        } else {
            self.next += 1.0;
            self.next - 1.0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each mark of a row causes so many of the next.
    fn regular(times: &[usize]) -> Vec<Vec<Mark>> {
        let mut rows: Vec<Vec<Mark>> = Vec::new();
        for (row, times) in times.iter().enumerate() {
            let above = rows.last().map_or(1, Vec::len);
            let marks = (0..above * times).map(|place| Mark {
                parent: (row > 0).then(|| (row - 1, place / times)),
                fate: Fate::Failed,
            });
            rows.push(marks.collect());
        }
        rows
    }

    #[test]
    fn callers_stand_over_the_middle_of_their_calls() {
        let tree = Tree::of(&regular(&[1, 3, 3])).unwrap();
        assert_eq!(tree.places[1].len(), 3);
        for (place, caller) in tree.places[1].iter().enumerate() {
            let calls = &tree.places[2][3 * place..3 * place + 3];
            assert!((calls[1] - caller).abs() < 1e-9, "{tree:?}");
        }
        assert!((tree.places[0][0] - tree.places[2][4]).abs() < 1e-9, "{tree:?}");
    }

    #[test]
    fn groups_stand_further_apart_than_siblings_and_groups_of_groups_further_still() {
        let tree = Tree::of(&regular(&[1, 3, 3, 3])).unwrap();
        let bottom = &tree.places[3];
        let apart = |place: usize| bottom[place] - bottom[place - 1];
        assert!(
            (apart(1) - 1.0).abs() < 1e-9 && apart(3) > 1.4 && apart(9) > apart(3) + 0.4,
            "{tree:?}"
        );
    }

    #[test]
    fn a_chain_without_retries_is_a_straight_line() {
        let tree = Tree::of(&regular(&[1, 1, 1, 1])).unwrap();
        assert!(tree.places.iter().flatten().all(|place| place.abs() < 1e-9), "{tree:?}");
    }

    #[test]
    fn many_calls_are_stacked_below_their_callers_and_do_not_touch() {
        let rows = regular(&[1, 9, 9, 9]);
        let tree = Tree::of(&rows).unwrap();
        let row = tree.row(3, tree.pitch(550.0), 550.0).unwrap();
        assert_eq!(row.marks.len(), 729);
        for (place, one) in row.marks.iter().enumerate() {
            for other in &row.marks[..place] {
                let apart = (one.0 - other.0).hypot(one.1 - other.1);
                assert!(apart >= 2.0 * row.radius, "{one:?} {other:?}");
            }
            assert!(one.0 > 0.0 && one.0 < 550.0 && one.1 <= row.depth, "{one:?}");
        }
    }

    #[test]
    fn what_is_too_much_for_marks_is_not_laid_out() {
        assert!(Tree::of(&regular(&[1, 1001])).is_none());
        // Hundreds in one column of a tree that is wide beside it.
        let mut rows = regular(&[1, 81]);
        rows.push(vec![
            Mark {
                parent: Some((1, 0)),
                fate: Fate::Failed
            };
            900
        ]);
        let tree = Tree::of(&rows).unwrap();
        assert!(tree.row(2, tree.pitch(550.0), 550.0).is_none());
    }

    #[test]
    fn calls_of_nobody_known_stand_for_themselves() {
        let mut rows = regular(&[1, 2]);
        rows[1].push(Mark {
            parent: None,
            fate: Fate::Open,
        });
        let tree = Tree::of(&rows).unwrap();
        assert!(tree.places[1][2] > tree.places[1][1] + 1.0, "{tree:?}");
    }
}
