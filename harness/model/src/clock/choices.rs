//! The choices of one course of events, and the way to the next course.

/// What was chosen where the order of two events is not certain.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// The choice made at each fork, and how many there were.
    made: Vec<(usize, usize)>,
    next: usize,
}

impl Choices {
    /// One of `ways`, the first where nothing else was chosen yet.
    pub(super) fn choose(&mut self, ways: usize) -> usize {
        if ways < 2 {
            return 0;
        }
        if self.next == self.made.len() {
            self.made.push((0, ways));
        }
        let (chosen, known) = self.made[self.next];
        debug_assert_eq!(known, ways, "the same choices lead to the same fork");
        self.next += 1;
        chosen
    }

    /// Turns to the next course; false when all were taken.
    pub(super) fn advance(&mut self) -> bool {
        self.made.truncate(self.next);
        self.next = 0;
        while let Some((chosen, ways)) = self.made.pop() {
            if chosen + 1 < ways {
                self.made.push((chosen + 1, ways));
                return true;
            }
        }
        false
    }
}
