package kube

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// An API that does not answer for a minute is asked again soon after it is back, and not all the time before.
func TestRetrying_Outage(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://kubernetes", Err: syscall.ECONNREFUSED}
	empty := watch.NewEmptyWatch()
	for name, outage := range map[string]struct {
		list, watch error
		watched     watch.Interface
	}{
		"connection refused": {list: refused, watch: refused},
		"503":                {list: apierrors.NewServiceUnavailable("starting"), watch: apierrors.NewServiceUnavailable("starting")},
		"500":                {list: apierrors.NewInternalError(errors.New("no etcd")), watch: apierrors.NewInternalError(errors.New("no etcd"))},
		"the connection breaks before the answers": {list: refused, watched: empty},
		"an answer breaks off":                     {list: io.ErrUnexpectedEOF, watch: io.ErrUnexpectedEOF},
	} {
		for what, ask := range map[string]func(context.Context, *cache.ListWatch) error{
			"list": func(ctx context.Context, source *cache.ListWatch) error {
				_, err := source.ListWithContext(ctx, metav1.ListOptions{})
				return err
			},
			"watch": func(ctx context.Context, source *cache.ListWatch) error {
				started, err := source.WatchWithContext(ctx, metav1.ListOptions{})
				if started == empty {
					return errors.New("no watch has begun")
				}
				return err
			},
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log logtest.Buffer
					ctx := klog.NewContext(t.Context(), logr.FromSlogHandler(slog.NewJSONHandler(&log, nil)))
					const lasts = time.Minute
					began, asked := time.Now(), 0
					away := func() bool { asked++; return time.Since(began) < lasts }
					err := ask(ctx, retrying(&cache.ListWatch{
						ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
							if away() {
								return nil, outage.list
							}
							return &metav1.List{}, nil
						},
						WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
							if away() {
								return outage.watched, outage.watch
							}
							return watch.NewFake(), nil
						},
					}, newAttempts()))
					if late := time.Since(began) - lasts; err != nil || late < 0 || late > 2*time.Second {
						t.Errorf("answered %s after the outage (%v)", late, err)
					}
					if asked < 30 || asked > 70 {
						t.Errorf("asked %d times in a minute", asked)
					}
					if lines := strings.Count(log.String(), "\n"); lines < 2 || lines > 3 {
						t.Errorf("logged\n%s, want a line each 30 s", &log)
					}
				})
			})
		}
	}
}

// Hundreds of namespaces wait for an API that is away, and then is slow to answer. It is asked as often as a few would ask, by a few at once, and
// all have their lists within seconds of its return.
func TestPagedInformers_ManyNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces, lasts = 300, time.Minute
		began := time.Now()
		var asked, inProgress, most, missing int
		var late time.Duration
		var mu sync.Mutex
		list := func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(began) < lasts {
				asked++
				return nil, apierrors.NewServiceUnavailable("starting")
			}
			inProgress++
			most = max(most, inProgress)
			mu.Unlock()
			<-time.After(20 * time.Millisecond)
			mu.Lock()
			inProgress--
			if missing--; missing == 0 {
				late = time.Since(began) - lasts
			}
			return &v1alpha1.ApiKeyList{}, nil
		}
		missing = namespaces
		newInformer := PagedInformers(func(object any) (any, error) { return object, nil })
		var informers sync.WaitGroup
		var log logtest.Buffer
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.FromSlogHandler(slog.NewJSONHandler(&log, nil))))
		for range namespaces {
			informer := newInformer(&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return watch.NewFake(), nil
			}}, &v1alpha1.ApiKey{}, 0, cache.Indexers{})
			informers.Go(func() { informer.RunWithContext(ctx) })
		}
		<-time.After(lasts + 10*time.Second)
		stop()
		informers.Wait()
		if missing != 0 || late > 3*time.Second {
			t.Errorf("%d of %d have no list, the last one came %s after the outage", missing, namespaces, late)
		}
		if asked > 700 || most > 10 {
			t.Errorf("asked %d times in a minute, and %d at once after it", asked, most)
		}
		if lines := strings.Count(log.String(), "trying again"); lines > 3 {
			t.Errorf("%d lines in the log", lines)
		}
	})
}

// Answers are the reflector's, and so is what fails without a request.
func TestRetrying_Answers(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, want := range map[string]error{
		"410":                           apierrors.NewResourceExpired("gone"),
		"429":                           apierrors.NewTooManyRequests("busy", 1),
		"403":                           apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no right")),
		"504, a version that is unseen": tooLarge,
		"a page that is too large":      errPageTooLarge,
	} {
		asked := 0
		source := retrying(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				asked++
				return nil, want
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				asked++
				return nil, want
			},
		}, newAttempts())
		_, listed := source.ListWithContext(t.Context(), metav1.ListOptions{})
		_, watched := source.WatchWithContext(t.Context(), metav1.ListOptions{})
		if !errors.Is(listed, want) || !errors.Is(watched, want) || asked != 2 {
			t.Errorf("%s: asked %d times, %v and %v", name, asked, listed, watched)
		}
	}
}

// A reflector that is stopped during an outage ends at once.
func TestRetrying_Stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := retrying(&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, apierrors.NewServiceUnavailable("starting")
		}}, newAttempts()).ListWithContext(ctx, metav1.ListOptions{})
		if took := time.Since(began); err == nil || took != 10*time.Second {
			t.Errorf("returned after %s: %v", took, err)
		}
	})
}
