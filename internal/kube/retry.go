package kube

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// retryDelays are the pauses between two attempts to reach the Kubernetes API, from 0.2 to 2 s with the jitter: a key that is disabled as soon
// as it is back is to be refused within five seconds.
func retryDelays() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: time.Second}
}

// Limits of all sources that share attempts.
const (
	// failureLogInterval is the time between two messages about an API that does not answer.
	failureLogInterval = 30 * time.Second
	// failurePause is the time between two attempts while they fail.
	failurePause = 100 * time.Millisecond
	// maxAttempts bounds the attempts in progress.
	maxAttempts = 8
)

// attempts bounds the lists and watches that many sources try to begin: a cache has a source for each watched namespace, and hundreds of them
// would ask an API server at once that is coming back. While attempts fail, one begins each failurePause; after an answer the others follow as
// fast as they are answered. It is safe for concurrent use.
type attempts struct {
	places  *semaphore.Weighted
	failure rate.Sometimes // in the log

	mu       sync.Mutex
	answered chan struct{} // closed while the last attempt was answered
	next     time.Time     // of an attempt while they fail
}

func newAttempts() *attempts {
	a := &attempts{places: semaphore.NewWeighted(maxAttempts), failure: rate.Sometimes{Interval: failureLogInterval}, answered: make(chan struct{})}
	close(a.answered)
	return a
}

// begin waits for the turn of an attempt, and returns what is to be called with its result. The error is that of ctx.
func (a *attempts) begin(ctx context.Context) (end func(answered bool), err error) {
	if err := a.places.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	answered, pause := a.reserve()
	select {
	case <-answered:
	case <-time.After(pause):
	case <-ctx.Done():
		a.places.Release(1)
		return nil, ctx.Err()
	}
	return a.end, nil
}

// reserve returns when the next attempt may begin: with an answer to another one, or after the pause.
func (a *attempts) reserve() (answered <-chan struct{}, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now()
	if a.next.After(at) {
		at = a.next
	}
	a.next = at.Add(failurePause)
	return a.answered, time.Until(at)
}

func (a *attempts) end(answered bool) {
	defer a.places.Release(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.answered:
		if !answered {
			a.answered, a.next = make(chan struct{}), time.Now().Add(failurePause)
		}
	default:
		if answered {
			close(a.answered)
		}
	}
}

// retrying returns a source whose lists and watches are tried until the Kubernetes API has answered, or the context ends. A reflector would
// wait longer with each failure, up to a minute, and as long after the API is back.
func retrying(source cache.ListerWatcher, shared *attempts) *cache.ListWatch {
	whole := cache.ToListerWatcherWithContext(source)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return retry(ctx, shared, func() (runtime.Object, error) { return whole.ListWithContext(ctx, options) })
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return retry(ctx, shared, func() (watch.Interface, error) {
				started, err := whole.WatchWithContext(ctx, options)
				if err == nil && reflect.TypeOf(started) == emptyWatch {
					return nil, errNoWatch
				}
				return started, err
			})
		},
	}
}

// emptyWatch is what client-go returns, without an error, in place of a watch whose connection broke before the answer.
var (
	emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())
	errNoWatch = errors.New("the connection broke before the watch began")
)

// retry asks until there is an answer.
func retry[T any](ctx context.Context, shared *attempts, ask func() (T, error)) (answer T, err error) {
	for delays := retryDelays(); ; {
		end, turnErr := shared.begin(ctx)
		if turnErr != nil {
			return answer, cmp.Or(err, turnErr)
		}
		answer, err = ask()
		end(err == nil || answered(err))
		if err == nil || ctx.Err() != nil || answered(err) {
			return answer, err
		}
		shared.failure.Do(func() { klog.FromContext(ctx).Error(err, "the Kubernetes API does not answer, trying again") })
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(delays.Step()):
		}
	}
}

// answered reports whether an error is for the reflector to decide about, which lists anew after 410 and waits after 429: an answer of the
// Kubernetes API other than 5xx, or a page that is too large for this process.
func answered(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		// A reflector that has seen a later version than this server, with status 504, asks for less.
		return status.Status().Code < http.StatusInternalServerError || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}
	return errors.Is(err, errPageTooLarge)
}
