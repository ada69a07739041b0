package dispatcher

import (
	"context"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// work wakes what works on a bucket when there is something to do, so that a bucket at rest costs nothing but its part of the
// look at all of them.
type work struct {
	lease, sweep [session.Buckets]chan struct{}
	looks        int
}

func newWork() *work {
	w := &work{}
	for i := range session.Buckets {
		w.lease[i], w.sweep[i] = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	return w
}

// sweepEvery is how many looks there are for one sweep. Where sessions are created all the time, some of them have their end all the
// time, most of which were settled before; together they cost less.
const sweepEvery = 2

// look wakes what works on the buckets in which something is due. Of a Redis Cluster a server may be away: it holds up its own
// buckets only.
func (d *dispatcher) look(ctx context.Context) (more bool, err error) {
	outlooks, err := d.store.Look(ctx)
	d.work.looks++
	for _, outlook := range outlooks {
		if outlook.Events {
			wake(d.work.lease[outlook.Bucket])
		}
		if outlook.Sessions && d.work.looks%sweepEvery == 0 {
			wake(d.work.sweep[outlook.Bucket])
		}
	}
	return false, d.partly(ctx, err, outlooks)
}

// partly returns an error that leaves nothing to go on with, and tells of one that does.
func (d *dispatcher) partly(ctx context.Context, err error, outlooks []store.Outlook) error {
	if err != nil && len(outlooks) > 0 && ctx.Err() == nil {
		d.couldNotWork(err)
		return nil
	}
	return err
}

// wake asks for one more round, if none has been asked for.
func wake(sleeper chan<- struct{}) {
	select {
	case sleeper <- struct{}{}:
	default:
	}
}
