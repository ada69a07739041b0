package kube

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

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
// as it is back is to be refused within five seconds, and each kind of each watched namespace asks for itself.
func retryDelays() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: time.Second}
}

// retryLogInterval is the time between two messages about an API that does not answer, for each source.
const retryLogInterval = 30 * time.Second

// retrying returns a source whose lists and watches are tried until the Kubernetes API has answered, or the context ends. A reflector would
// wait longer with each failure, up to a minute, and as long after the API is back.
func retrying(source cache.ListerWatcher) *cache.ListWatch {
	whole := cache.ToListerWatcherWithContext(source)
	log := &rate.Sometimes{Interval: retryLogInterval}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return retry(ctx, log, func() (runtime.Object, error) { return whole.ListWithContext(ctx, options) })
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return retry(ctx, log, func() (watch.Interface, error) {
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
func retry[T any](ctx context.Context, log *rate.Sometimes, ask func() (T, error)) (T, error) {
	for delays := retryDelays(); ; {
		answer, err := ask()
		if err == nil || ctx.Err() != nil || answered(err) {
			return answer, err
		}
		log.Do(func() { klog.FromContext(ctx).Error(err, "the Kubernetes API does not answer, trying again") })
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
