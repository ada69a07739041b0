package dispatcher

import (
	"sync"
	"time"
)

// lanes share the attempts this dispatcher makes at a time among merchants, so that the events of one whose endpoint
// is slow or dead take neither the places nor the time of the others. What finds no place is not kept: it is put off,
// and whichever dispatcher is free then takes it.
type lanes struct {
	limits lanesLimits
	now    func() time.Time
	// attempt makes one attempt and reports whether the endpoint took it.
	attempt func(parcel) verdict
	// putOff hands events back, to come due after the time.
	putOff func(after time.Duration, why string, parcels ...parcel)

	mu       sync.Mutex
	lanes    map[string]*lane // by merchant id
	inLine   []*lane          // for a free place
	running  int
	queued   int
	closed   bool
	attempts sync.WaitGroup
}

type lanesLimits struct {
	// perEndpoint and inAll bound attempts under way, queue the events that wait for one endpoint and queued for all.
	perEndpoint, inAll, queue, queued int
}

// verdict is what an attempt says of the endpoint.
type verdict int

const (
	unknown verdict = iota // nothing
	took
	failed
)

// offer takes an event in, or returns after which time to try again, and why.
func (l *lanes) offer(p parcel) (after time.Duration, why string, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, deferredStopping, false
	}
	found := l.lanes[p.lease.Event.MerchantID]
	if found == nil {
		found = &lane{}
		l.lanes[p.lease.Event.MerchantID] = found
	}
	if wait := found.breaker.wait(l.now()); wait > 0 {
		return wait, deferredBroken, false
	}
	if len(found.queue) >= l.limits.queue || l.queued >= l.limits.queued {
		return busyPause, deferredBusy, false
	}
	found.queue = append(found.queue, p)
	l.queued++
	l.lineUp(found)
	l.fill()
	return 0, "", true
}

// lineUp puts a lane at the end of the line, if it has something to do.
func (l *lanes) lineUp(lane *lane) {
	if !lane.ready && lane.mayStart(l.limits.perEndpoint) {
		lane.ready = true
		l.inLine = append(l.inLine, lane)
	}
}

// fill starts attempts while there are free places, one of each lane in turn.
func (l *lanes) fill() {
	for l.running < l.limits.inAll && len(l.inLine) > 0 {
		lane := l.inLine[0]
		l.inLine = l.inLine[1:]
		lane.ready = false
		if !lane.mayStart(l.limits.perEndpoint) {
			continue
		}
		next := lane.pop()
		l.queued--
		lane.running++
		l.running++
		l.attempts.Go(func() { l.run(lane, next) })
		l.lineUp(lane)
	}
}

// run makes an attempt, unless the event has waited for so long that its lease could end under way.
func (l *lanes) run(lane *lane, p parcel) {
	outcome := unknown
	if l.now().After(p.startBy) {
		l.putOff(0, deferredBusy, p)
	} else {
		outcome = l.attempt(p)
	}
	if rest, after := l.finished(lane, p, outcome); len(rest) > 0 {
		l.putOff(after, deferredBroken, rest...)
	}
}

// finished makes room for the next. It returns what waits for an endpoint whose breaker has opened.
func (l *lanes) finished(lane *lane, p parcel, outcome verdict) (rest []parcel, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane.running--
	l.running--
	switch outcome {
	case took:
		lane.breaker.succeeded()
	case failed:
		if lane.breaker.failed(l.now()) {
			rest, after = lane.clear(), lane.breaker.wait(l.now())
			l.queued -= len(rest)
		}
	case unknown:
	}
	if lane.idle() {
		delete(l.lanes, p.lease.Event.MerchantID)
	}
	l.lineUp(lane)
	l.fill()
	return rest, after
}

// close takes nothing more, and hands back what waits.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	var rest []parcel
	for _, lane := range l.lanes {
		rest = append(rest, lane.clear()...)
	}
	l.queued = 0
	l.mu.Unlock()
	l.putOff(0, deferredStopping, rest...)
}

// await waits for the attempts under way, once it is closed, and reports whether they have all ended in time.
func (l *lanes) await(patience time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		l.attempts.Wait()
		close(ended)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// underWay returns how many attempts there are now.
func (l *lanes) underWay() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}
