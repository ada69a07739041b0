package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// firstPage is the number of objects of the first page: of the largest that etcd stores, they are less than maxPageBytes.
	firstPage = 20
	// longestPage bounds what the API server encodes at a time. For each page it looks at all objects that are left: pages of 500 cost it
	// twice as much for 100,000.
	longestPage = 5000
	// maxPageBytes is the most that is read of a page, so it bounds what is in memory as tenants wrote it.
	maxPageBytes = 32 << 20
	// maxRestarts is how often a list begins anew because the API server has forgotten its version, five minutes after the first page.
	maxRestarts = 3
)

// PagedInformers returns a constructor for the informers of a cache (cache.Options.NewInformer) that bounds the memory of a list: it is
// read in pages, and each page is transformed before the next one is read. They are current within seconds of the return of a Kubernetes API
// that was away; those of one kind share their attempts to reach it. The client must be of a config of Load; with another one all pages are short.
func PagedInformers(transform cache.TransformFunc) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	var mu sync.Mutex
	byKind := map[reflect.Type]*attempts{}
	return func(source cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		mu.Lock()
		defer mu.Unlock()
		kind := reflect.TypeOf(object)
		if byKind[kind] == nil {
			byKind[kind] = newAttempts()
		}
		whole := retrying(source, byKind[kind])
		return cache.NewSharedIndexInformer(pagedSource{&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return listInPages(ctx, whole.ListWithContext, transform, options, maxPageBytes)
			},
			WatchFuncWithContext: whole.WatchWithContext,
		}}, object, resync, indexers)
	}
}

// pagedSource makes a reflector list, and not watch the list: as an event of its own each object costs the API server twice as much, and the
// client three times.
type pagedSource struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by a reflector.
func (pagedSource) IsWatchListSemanticsUnSupported() bool { return true }

// listFunc lists one page.
type listFunc func(context.Context, metav1.ListOptions) (runtime.Object, error)

// listInPages returns the whole list, of transformed objects. It lists the latest version, because an API server ignores the size of a
// page for the version 0, which a reflector asks for first. A list whose version has expired begins anew, with the longer pages that it
// had come to: its rest would be of another version, and what has changed between the two would never be seen.
func listInPages(ctx context.Context, list listFunc, transform cache.TransformFunc, options metav1.ListOptions, maxBytes int64) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Continue, options.Limit = "", "", "", firstPage
	var items []runtime.Object
	for restarts := 0; ; {
		page, err := nextPage(ctx, list, &options, maxBytes)
		if (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) && options.Continue != "" && restarts < maxRestarts {
			restarts++
			options.Continue, items = "", nil
			continue
		}
		if err != nil {
			return nil, err
		}
		items, err = appendTransformed(items, page, transform)
		if err != nil {
			return nil, err
		}
		metadata, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue = metadata.GetContinue(); options.Continue == "" {
			return page, meta.SetList(page, items)
		}
	}
}

// nextPage lists the page of these options, and sets the limit for the one after: shorter if this one was too large, longer if that one
// is small too.
func nextPage(ctx context.Context, list listFunc, options *metav1.ListOptions, maxBytes int64) (runtime.Object, error) {
	for {
		size := pageSize{max: maxBytes}
		page, err := list(context.WithValue(ctx, pageKey{}, &size), *options)
		switch {
		case errors.Is(err, errPageTooLarge) && options.Limit > 1:
			const shorter = 4 // few attempts: each is read to the bound
			options.Limit = max(options.Limit/shorter, 1)
			continue
		case err == nil && 0 < size.read && size.read < maxBytes/4:
			options.Limit = min(2*options.Limit, longestPage)
		}
		return page, err
	}
}

// appendTransformed appends the transformed objects of a page.
func appendTransformed(items []runtime.Object, page runtime.Object, transform cache.TransformFunc) ([]runtime.Object, error) {
	err := meta.EachListItem(page, func(item runtime.Object) error {
		transformed, err := transform(item)
		if err != nil {
			return err
		}
		object, ok := transformed.(runtime.Object)
		if !ok {
			return fmt.Errorf("the transformed object is a %T", transformed)
		}
		items = append(items, object)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read a page of the list: %w", err)
	}
	return items, nil
}

// pageSize counts the bytes of a page while it is read.
type pageSize struct{ read, max int64 }

// pageKey is the key of a *pageSize in the context of a request.
type pageKey struct{}

var errPageTooLarge = errors.New("the page of a list is too large, and is asked for in parts")

// boundPages bounds what clients of the config read of a page of listInPages.
func boundPages(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return pageTransport{next} })
}

type pageTransport struct{ next http.RoundTripper }

// RoundTrip sends the request. If it is for a page, reading the answer fails beyond the bound.
func (t pageTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if size, ok := request.Context().Value(pageKey{}).(*pageSize); ok && err == nil {
		size.read = 0 // of an earlier attempt
		response.Body = pageBody{response.Body, size}
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t pageTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

type pageBody struct {
	io.ReadCloser

	size *pageSize
}

func (b pageBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.size.read += int64(n); b.size.read > b.size.max {
		return n, errPageTooLarge
	}
	return n, err
}
