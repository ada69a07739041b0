package web

import "sync"

// Inflight counts requests in progress that take long. It is safe for concurrent use.
type Inflight struct {
	most, mostOfPerson int
	errTooMany         error

	mu       sync.Mutex
	all      int
	byPerson map[string]int // no entry: none
}

// NewInflight returns a counter of at most so many requests, and so many of one person. errTooMany is the error of one more.
func NewInflight(most, mostOfPerson int, errTooMany error) *Inflight {
	return &Inflight{most: most, mostOfPerson: mostOfPerson, errTooMany: errTooMany, byPerson: map[string]int{}}
}

// Begin admits a request, which ends with end. The error says that there are too many.
func (i *Inflight) Begin(person string) (end func(), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all >= i.most || i.byPerson[person] >= i.mostOfPerson {
		return nil, i.errTooMany
	}
	i.all++
	i.byPerson[person]++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.all--
		i.byPerson[person]--
		if i.byPerson[person] == 0 {
			delete(i.byPerson, person)
		}
	}, nil
}
