package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Object is a Merchant or an ApiKey, before and after the manifests are applied.
type Object[T any] struct {
	Kind, Namespace, Name string
	// Source is the file with the manifest; empty: there is none.
	Source string
	// PrunedBy is the tool that manages an object without a manifest. The plan is made as if the tool deleted it. Empty: it stays.
	PrunedBy string
	// Before is nil if it does not exist yet, After if it is deleted or was refused before it existed.
	Before, After *T
	// ManifestOnly is After without the fields that only the cluster has; nil: it is unknown.
	ManifestOnly *T
	// ByKubectl: kubectl apply manages it.
	ByKubectl bool
	// Refused is what the API server says against the manifest or the deletion; empty: nothing.
	Refused string
	// Corrected is the object if the manifest had present values instead of those that are refused; nil: nothing is refused, or it is unknown.
	Corrected *T
	// Unchecked: the API server could not check it, because its namespace does not exist yet.
	Unchecked bool
	// Unbuilt says what is still to be done with the manifest before it is applied, so that its effects are unknown; empty: nothing.
	Unbuilt string
}

// Deleted reports whether the object ends.
func (o Object[T]) Deleted() bool { return o.Before != nil && o.After == nil }

// Created reports whether the object is new.
func (o Object[T]) Created() bool { return o.Before == nil && o.After != nil }

// State is all objects of the namespaces that manifests change.
type State struct {
	Merchants []Object[v1alpha1.Merchant]
	ApiKeys   []Object[v1alpha1.ApiKey]
	// Digests has, for each spec.keyDigest, the ApiKeys with it, as far as they can be listed: now, and when all is applied.
	Digests map[string][]string
	// Unknown are the refused manifests of no kind that there is, and those that change other manifests.
	Unknown []Object[struct{}]
	Now     time.Time
}

// Severity says what an effect means for the exit code.
type Severity string

// Severities, the worst first.
const (
	// Refused: the API server or the operator does not do what the manifest says.
	Refused Severity = "refused"
	// Ends: something that works now ends or is refused.
	Ends Severity = "ends"
	// May: something may end or be refused, which this cannot know.
	May Severity = "may"
	// Note: nothing ends.
	Note Severity = "note"
)

// Effect is one thing that happens when the manifests are applied.
type Effect struct {
	// Type is one of a closed list, see docs/gitops.md.
	Type     string   `json:"type"`
	Severity Severity `json:"severity"`
	// Message is a sentence. Names are between backticks, which no name contains.
	Message string `json:"message"`
	// LastUsedTime is when a key that ends was last used; absent: no use is known.
	LastUsedTime *metav1.Time `json:"lastUsedTime,omitempty"`
}

// Change is what happens to an object.
type Change struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source,omitempty"`
	// Action is create, change, delete, none, refused, or unknown for a manifest that is not built.
	Action string `json:"action"`
	// Fields are the fields of the spec that change.
	Fields  []string `json:"fields,omitempty"`
	Effects []Effect `json:"effects"`
}

// newChange compares an object before and after; spec returns its spec.
func newChange[T any](o Object[T], spec func(*T) any, effects []Effect) Change {
	c := Change{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Source: o.Source, Action: "none", Effects: effects}
	switch {
	case o.Unbuilt != "":
		c.Action = "unknown"
		c.Effects = []Effect{{Type: "Unbuilt", Severity: May, Message: o.Unbuilt + buildFirst}}
	case o.Refused != "":
		c.Action = "refused"
		refused := Effect{Type: "Refused", Severity: Refused, Message: quoted(o.Refused)}
		if len(effects) > 0 {
			refused.Message += " What follows happens when that is right."
		}
		c.Effects = slices.Concat([]Effect{refused}, effects)
	case o.Unchecked:
		c.Action = "create"
		c.Effects = append(c.Effects, Effect{
			Type: "Unchecked", Severity: May,
			Message: "Namespace " + quoted(o.Namespace) + " does not exist yet, so the API server did not check this object.",
		})
	case o.Deleted():
		c.Action = "delete"
	case o.Created():
		c.Action = "create"
	case o.Before != nil && !equality.Semantic.DeepEqual(spec(o.Before), spec(o.After)):
		c.Action, c.Fields = "change", changedFields(spec(o.Before), spec(o.After))
	}
	if o.Refused == "" && o.After != nil {
		c.Effects = append(c.Effects, owned(o)...)
	}
	if o.PrunedBy != "" {
		c.Effects = slices.Concat([]Effect{prune(o.PrunedBy)}, c.Effects)
	}
	if o.ManifestOnly != nil {
		c.Effects = append(c.Effects, notInManifest(changedFields(spec(o.After), spec(o.ManifestOnly)), o.ByKubectl)...)
	}
	return c
}

// buildFirst is the advice for manifests that are not what is applied.
const buildFirst = " This plan does not know the result. Pipe what is applied: flux build kustomization NAME --path DIR | kubectl merchant plan -f -"

// Variables is what Unbuilt says of a manifest with variables.
const Variables = "The manifest has ${…}, which postBuild of a Kustomization of Flux replaces."

// Unbuilt returns what the Kustomization means for the plan.
func (f FluxTransforms) Unbuilt() Object[struct{}] {
	return Object[struct{}]{
		Kind: "Kustomization", Namespace: f.Namespace, Name: f.Name, Source: f.Source,
		Unbuilt: "This Kustomization of Flux changes objects before it applies them, by " + list(f.Fields) + ".",
	}
}

// owned: an owner takes the object with it, and an owner that there is not, such as one of another cluster, does so at once.
func owned[T any](o Object[T]) []Effect {
	references := func(object *T) []metav1.OwnerReference {
		if meta, ok := any(object).(metav1.Object); object != nil && ok {
			return meta.GetOwnerReferences()
		}
		return nil
	}
	var owners []string
	for _, owner := range references(o.After) {
		if !slices.ContainsFunc(references(o.Before), func(before metav1.OwnerReference) bool { return before.UID == owner.UID }) {
			owners = append(owners, owner.Kind+"/"+owner.Name)
		}
	}
	if owners == nil {
		return nil
	}
	return []Effect{{
		Type: "Owned", Severity: May,
		Message: "metadata.ownerReferences has " + list(owners) + ": Kubernetes deletes this object when they end, or now if none of them exists with its uid.",
	}}
}

// prune says that nobody knows here whether a tool deletes an object that it manages and no manifest has.
func prune(tool string) Effect {
	return Effect{
		Type: "NoManifest", Severity: May,
		Message: "No manifest has this object, which " + quoted(tool) + " manages. This plan does not know whether that tool deletes it; the plan is made as if it did.",
	}
}

// notInManifest is about fields that only the cluster has. What becomes of them depends on the tool that applies the manifests.
func notInManifest(fields []string, byKubectl bool) []Effect {
	if len(fields) == 0 {
		return nil
	}
	e := Effect{
		Type: "NotInManifest", Severity: May,
		Message: "Only the cluster has a value for " + list(fields) + ". This plan does not know whether the tool that applies the manifests keeps or removes it.",
	}
	if byKubectl {
		e.Severity = Note
	}
	if slices.Contains(fields, "spec.rotation.trigger") {
		e.Message += " Without its trigger the key is replaced."
	}
	return []Effect{e}
}
