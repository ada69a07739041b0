package feeds

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Watch takes the published objects of the credentials namespace in, and every change of them, until
// ctx ends. While the Kubernetes API is away it keeps trying. The client is one of the core API
// group. One Watch at a time.
func (s *Set) Watch(ctx context.Context, client cache.Getter, credentialsNamespace string) {
	var reflectors sync.WaitGroup
	for _, f := range s.feeds {
		labelled := cache.NewFilteredListWatchFromClient(client, f.source.Resource, credentialsNamespace,
			func(options *metav1.ListOptions) { options.LabelSelector = published.Label + "=" + f.source.Label })
		reflectors.Go(func() { reflect(ctx, labelled, f) })
	}
	reflectors.Wait()
}

// reflect keeps a feed current until ctx ends.
func reflect(ctx context.Context, source cache.ListerWatcher, into *Feed) {
	reflector := cache.NewReflectorWithOptions(source, into.source.Object, into, cache.ReflectorOptions{
		Name: "directory",
		// Gentle to a struggling API server, yet current within seconds of its return.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 10 * time.Second},
	})
	// client-go finds its logger in the context.
	reflector.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(into.log.Handler())))
}
