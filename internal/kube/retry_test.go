package kube

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"
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
					}))
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
		})
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
		}}).ListWithContext(ctx, metav1.ListOptions{})
		if took := time.Since(began); err == nil || took != 10*time.Second {
			t.Errorf("returned after %s: %v", took, err)
		}
	})
}
