package directory

import (
	"slices"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Permissions are what a key may do, in one byte: there may be hundreds of thousands of keys. The zero value permits nothing.
type Permissions uint8

// known are the permissions of this version, by their bits.
var known = v1alpha1.Permissions()

// NewPermissions reads those of a record: nil is what a record implies, and an unknown word grants nothing.
func NewPermissions(words []v1alpha1.Permission) Permissions {
	if words == nil {
		words = v1alpha1.ImpliedPermissions()
	}
	var p Permissions
	for bit, permission := range known {
		if slices.Contains(words, permission) {
			p |= 1 << bit
		}
	}
	return p
}

// Has reports whether a key may do something. What this version does not know is not allowed.
func (p Permissions) Has(permission v1alpha1.Permission) bool {
	bit := slices.Index(known, permission)
	return bit >= 0 && p&(1<<bit) != 0
}

// List returns the permissions in the order of v1alpha1.Permissions.
func (p Permissions) List() []v1alpha1.Permission {
	list := make([]v1alpha1.Permission, 0, len(known))
	for _, permission := range known {
		if p.Has(permission) {
			list = append(list, permission)
		}
	}
	return list
}
