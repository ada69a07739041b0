package apikeys

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// confirm reads the facts again from the API server, also what no cache holds: who has the name the
// key is to be delivered under.
func (r *Reconciler) confirm(ctx context.Context, seen facts) (facts, error) {
	apiKey, err := subject.Confirm(ctx, r.Live, seen.apiKey)
	if err != nil {
		return seen, err
	}
	f, err := r.read(ctx, r.Live, apiKey)
	if err != nil {
		return f, err
	}
	for _, name := range f.secretNames(seen.delivered) {
		secret, err := r.liveSecret(ctx, apiKey.Namespace, name)
		switch {
		case err != nil:
			return f, err
		case secret == nil:
		case ownedBy(secret, apiKey.UID):
			f.delivered = append(f.delivered, delivered{secret.ObjectMeta})
		case name == f.target():
			f.targetTaken = true
		}
	}
	return f, nil
}

// liveSecret returns the metadata of a tenant's Secret; nil: there is none.
func (r *Reconciler) liveSecret(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	secret := secretMetadata()
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at Secret %s/%s: %w", namespace, name, err)
	}
	return secret, nil
}

// secretMetadata asks for a Secret without its data.
func secretMetadata() *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return metadata
}
