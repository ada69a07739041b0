package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Kind puts published objects of one kind into an index and takes them out. Its methods are called one
// at a time.
type Kind interface {
	// Read decodes an object. Of a long list everything is read before anything is put in, so what it returns
	// should be no more than what the index keeps. An error says that the object cannot be decoded; it
	// never quotes what the object holds.
	Read(object metav1.Object) (record any, err error)
	// Put takes in what was read, in place of what there is under the name. An error says that the index
	// cannot use it; it quotes nothing of it either.
	Put(name string, record any) error
	// Drop takes out what there is under the name, if anything.
	Drop(name string)
	// Spoil is Drop for an object that is there and cannot be decoded.
	Spoil(name string)
	// Defer is for an object that a newer program wrote: what is known of it holds until it can be read.
	Defer(name string)
	// Names are those of everything that is in.
	Names() []string
}

// Decoded is the Kind of objects of type O that decode to a record R. Every field but Spoilt is required.
type Decoded[O metav1.Object, R any] struct {
	Decode func(O) (R, error)
	// Take puts the record of an object of that name into the index; an error says that the index cannot use it.
	Take func(name string, record R) error
	// Forget takes out what there is under the name of an object, and All are the names there are.
	Forget func(name string)
	All    func() []string
	// Spoilt is called in place of Forget when an object is there and cannot be decoded; nil: that makes no difference.
	Spoilt func(name string)
	// Newer is called in place of Spoilt when a newer program wrote the object; nil: that makes no difference.
	Newer func(name string)
}

// Read decodes an object.
func (d Decoded[O, R]) Read(object metav1.Object) (any, error) {
	typed, ok := object.(O)
	if !ok {
		return nil, fmt.Errorf("%w: it is a %T", published.ErrInvalid, object)
	}
	return d.Decode(typed)
}

// Put has a record taken in.
func (d Decoded[O, R]) Put(name string, record any) error {
	typed, ok := record.(R)
	if !ok {
		return fmt.Errorf("%w: it was read as a %T", published.ErrInvalid, record)
	}
	return d.Take(name, typed)
}

// Drop has it forgotten.
func (d Decoded[O, R]) Drop(name string) { d.Forget(name) }

// Spoil has it forgotten, or remembered as one that is there.
func (d Decoded[O, R]) Spoil(name string) {
	if d.Spoilt == nil {
		d.Forget(name)
		return
	}
	d.Spoilt(name)
}

// Defer has it kept, or spoils it.
func (d Decoded[O, R]) Defer(name string) {
	if d.Newer == nil {
		d.Spoil(name)
		return
	}
	d.Newer(name)
}

// Names are all there are.
func (d Decoded[O, R]) Names() []string { return d.All() }
