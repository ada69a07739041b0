package feeds

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Kind puts published objects of one kind into an index and takes them out. Its methods are called one
// at a time.
type Kind interface {
	// Put takes an object in, in place of an earlier one of its name. An error says that it cannot be
	// decoded; it never quotes what the object holds.
	Put(object metav1.Object) error
	// Drop takes out what there is under the name, if anything.
	Drop(name string)
	// Names are those of everything that is in.
	Names() []string
}

// Decoded is the Kind of objects of type O that decode to a record R. Every field is required.
type Decoded[O metav1.Object, R any] struct {
	Decode func(O) (R, error)
	// Take puts a record into the index; an error says that the index cannot use it.
	Take func(object O, record R) error
	// Forget takes out what there is under the name of an object, and All are the names there are.
	Forget func(name string)
	All    func() []string
}

// Put decodes an object and has it taken in.
func (d Decoded[O, R]) Put(object metav1.Object) error {
	typed, ok := object.(O)
	if !ok {
		return fmt.Errorf("%w: it is a %T", published.ErrInvalid, object)
	}
	record, err := d.Decode(typed)
	if err != nil {
		return err
	}
	return d.Take(typed, record)
}

// Drop has it forgotten.
func (d Decoded[O, R]) Drop(name string) { d.Forget(name) }

// Names are all there are.
func (d Decoded[O, R]) Names() []string { return d.All() }
