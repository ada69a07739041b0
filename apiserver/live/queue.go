package live

import (
	"container/heap"
	"time"
)

// queue has the watched sessions of a bucket in the order in which they are to be read.
type queue []*watched

// place is a session's place in the queue.
type place struct {
	at     time.Time
	reason Reason // why it is read
	index  int    // counts from 1; 0: it is not in the queue
}

func (q *queue) first() *watched {
	if len(*q) == 0 {
		return nil
	}
	return (*q)[0]
}

func (q *queue) put(w *watched, at time.Time) {
	w.at = at
	if w.index > 0 {
		heap.Fix(q, w.index-1)
		return
	}
	heap.Push(q, w)
}

func (q *queue) remove(w *watched) {
	if w.index > 0 {
		heap.Remove(q, w.index-1)
	}
}

// Len is of heap.Interface, as are the others.
func (q *queue) Len() int { return len(*q) }

// Less puts the earlier one first.
func (q *queue) Less(i, j int) bool { return (*q)[i].at.Before((*q)[j].at) }

// Swap swaps two sessions.
func (q *queue) Swap(i, j int) {
	all := *q
	all[i], all[j] = all[j], all[i]
	all[i].index, all[j].index = i+1, j+1
}

// Push appends a session.
func (q *queue) Push(x any) {
	w := x.(*watched) //nolint:forcetypeassert // put pushes nothing else
	*q = append(*q, w)
	w.index = len(*q)
}

// Pop takes the last session.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	last.index = 0
	return last
}
