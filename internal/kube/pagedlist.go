package kube

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// listPage is the number of objects in memory as a tenant wrote them: 20 of them are at most 30 MB, the size that etcd allows.
const listPage = 20

// PagedInformers returns a constructor for the informers of a cache (cache.Options.NewInformer) that bounds the memory of a list: it is
// read in pages, and each page is transformed before the next one is read. An API server since Kubernetes 1.34 streams the objects
// of a list one by one, and is asked for no page.
func PagedInformers(transform cache.TransformFunc) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	return func(source cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		whole := cache.ToListerWatcherWithContext(source)
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return listInPages(ctx, whole.ListWithContext, transform, options)
			},
			WatchFuncWithContext: whole.WatchWithContext,
		}, object, resync, indexers)
	}
}

// listInPages returns the whole list, of transformed objects. It lists the latest version, because an API server ignores the size of a
// page for the version 0, which a reflector asks for first.
func listInPages(ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error), transform cache.TransformFunc, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch, options.Limit = "", "", listPage
	var items []runtime.Object
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(item runtime.Object) error {
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
		metadata, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue = metadata.GetContinue(); options.Continue == "" {
			return page, meta.SetList(page, items)
		}
	}
}
