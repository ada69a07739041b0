package console

import (
	"errors"
	"sync"
)

const (
	// maxExports bounds the downloads at once, and maxPersonExports those of one person.
	maxExports, maxPersonExports = 32, 2
	// maxWaits bounds the pages that wait for somebody else at once, and maxPersonWaits those of one person: each keeps a connection for
	// as long as answerTimeout.
	maxWaits, maxPersonWaits = 64, 4
)

// Errors of too many requests in progress, of all people or of one.
var (
	errTooManyExports = errors.New("too many downloads at once")
	errTooManyWaits   = errors.New("too many pages wait at once")
)

// inflight counts requests in progress that take long. It is safe for concurrent use.
type inflight struct {
	most, mostOfPerson int
	errTooMany         error

	mu       sync.Mutex
	all      int
	byPerson map[string]int // no entry: none
}

func newInflight(most, mostOfPerson int, errTooMany error) *inflight {
	return &inflight{most: most, mostOfPerson: mostOfPerson, errTooMany: errTooMany, byPerson: map[string]int{}}
}

// begin admits a request, which ends with end. The error says that there are too many.
func (i *inflight) begin(person string) (end func(), err error) {
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
