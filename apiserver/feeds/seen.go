package feeds

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// seen is what is left of an object once it was read.
type seen struct {
	name, version string
	record        any
	err           error // why there is no record, or none that the index can use
}

func (f *Feed) see(object any) *seen {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return &seen{err: err} // a reflector passes nothing but objects of its type
	}
	record, err := f.source.Kind.Read(accessor)
	return &seen{name: accessor.GetName(), version: accessor.GetResourceVersion(), record: record, err: err}
}

// Transformer has the reflector read each object of a list as it arrives (cache.TransformingStore). It collects the whole
// list before it calls Replace; whole objects would then be the most memory that a replica ever needs.
func (f *Feed) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return f.see(object), nil }
}
