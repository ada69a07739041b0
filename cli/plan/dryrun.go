package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// planner finds out what the API server would do with manifests.
type planner struct {
	*cluster.Cluster

	manifests *Manifests
	state     State
	// dryRuns fill the state.
	dryRuns []func(context.Context) error
}

// concurrentDryRuns is how many the API server does at a time.
const concurrentDryRuns = 8

// run fills the state.
func (p *planner) run(ctx context.Context, prune, allNamespaces bool) error {
	for _, namespace := range p.namespaces(prune, allNamespaces) {
		if err := p.readLive(ctx, namespace); err != nil {
			return err
		}
	}
	p.match()
	if prune {
		owners := append(managers(p.state.Merchants), managers(p.state.ApiKeys)...)
		pruned(p, p.state.Merchants, owners)
		pruned(p, p.state.ApiKeys, owners)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentDryRuns)
	for _, dryRun := range p.dryRuns {
		group.Go(func() error { return dryRun(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return p.findDigests(ctx)
}

// namespaces returns the namespaces to read; one empty name stands for all namespaces.
func (p *planner) namespaces(prune, allNamespaces bool) []string {
	if allNamespaces {
		return []string{""}
	}
	var namespaces []string
	if prune {
		namespaces = []string{p.Namespace}
	}
	for _, manifest := range p.manifests.Objects {
		if namespace := manifest.Object.GetNamespace(); len(validation.IsDNS1123Label(namespace)) == 0 {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

func (p *planner) readLive(ctx context.Context, namespace string) error {
	var merchants v1alpha1.MerchantList
	if err := p.List(ctx, &merchants, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Merchants: %w", err)
	}
	for i := range merchants.Items {
		m := &merchants.Items[i]
		p.state.Merchants = append(p.state.Merchants, Object[v1alpha1.Merchant]{Kind: "Merchant", Namespace: m.Namespace, Name: m.Name, Before: m, After: m})
	}
	var keys v1alpha1.ApiKeyList
	if err := p.List(ctx, &keys, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list ApiKeys: %w", err)
	}
	for i := range keys.Items {
		k := &keys.Items[i]
		p.state.ApiKeys = append(p.state.ApiKeys, Object[v1alpha1.ApiKey]{Kind: "ApiKey", Namespace: k.Namespace, Name: k.Name, Before: k, After: k})
	}
	return nil
}

// match finds the live object of each manifest, and plans its dry run.
func (p *planner) match() {
	merchants, keys := map[Manifest]int{}, map[Manifest]int{}
	for _, manifest := range p.manifests.Objects {
		switch manifest.Object.GroupVersionKind() {
		case v1alpha1.SchemeGroupVersion.WithKind("Merchant"):
			i := slot(&p.state.Merchants, manifest)
			if manifest.Variables {
				p.state.Merchants[i].Unbuilt = Variables
			} else {
				merchants[manifest] = i
			}
		case v1alpha1.SchemeGroupVersion.WithKind("ApiKey"):
			i := slot(&p.state.ApiKeys, manifest)
			if manifest.Variables {
				p.state.ApiKeys[i].Unbuilt = Variables
			} else {
				keys[manifest] = i
			}
		default:
			i := slot(&p.state.Unknown, manifest)
			p.state.Unknown[i].Refused = fmt.Sprintf("there is no kind %s in %s", manifest.Object.GetKind(), manifest.Object.GetAPIVersion())
		}
	}
	for _, kustomization := range p.manifests.Flux {
		p.state.Unknown = append(p.state.Unknown, kustomization.Unbuilt())
	}
	for manifest, i := range merchants {
		p.dryRuns = append(p.dryRuns, func(ctx context.Context) error { return apply(ctx, p, manifest, &p.state.Merchants[i]) })
	}
	for manifest, i := range keys {
		p.dryRuns = append(p.dryRuns, func(ctx context.Context) error { return apply(ctx, p, manifest, &p.state.ApiKeys[i]) })
	}
}

// slot returns the place of a manifest's object in the state.
func slot[T any](objects *[]Object[T], manifest Manifest) int {
	namespace, name := manifest.Object.GetNamespace(), manifest.Object.GetName()
	i := slices.IndexFunc(*objects, func(o Object[T]) bool { return o.Namespace == namespace && o.Name == name })
	if i < 0 {
		i = len(*objects)
		*objects = append(*objects, Object[T]{Kind: manifest.Object.GetKind(), Namespace: namespace, Name: name})
	}
	(*objects)[i].Source = manifest.Source
	return i
}

// apply does a dry run of a manifest.
func apply[T any, P interface {
	*T
	client.Object
}](ctx context.Context, p *planner, manifest Manifest, o *Object[T]) error {
	object := manifest.Object.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "status")
	if problem := invalidName(o.Namespace, o.Name); problem != "" {
		o.Refused = problem
		return nil
	}
	var live client.Object
	if o.Before != nil {
		live = P(o.Before)
	}
	err := p.send(ctx, object, live)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err) && p.manifests.Namespaces[o.Namespace]:
		o.Unchecked = true
	case cluster.RefusesObject(err):
		return refuse[T, P](ctx, p, manifest, o, err)
	default:
		return fmt.Errorf("try %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	o.After = new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, o.After); err != nil {
		return fmt.Errorf("read %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	if live == nil {
		return nil
	}
	o.ByKubectl = appliedByKubectl(live)
	if o.ManifestOnly, err = replaceSpec[T](ctx, p, manifest.Object); err != nil && !cluster.RefusesObject(err) {
		return fmt.Errorf("try the manifest of %s %s/%s alone: %w", o.Kind, o.Namespace, o.Name, err)
	}
	return nil
}

// replaceSpec does a dry run of a manifest's spec in place of the live one: the result has no field that only the cluster has, except defaults.
func replaceSpec[T any](ctx context.Context, p *planner, manifest *unstructured.Unstructured) (*T, error) {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec", "value": manifest.Object["spec"]}})
	if err != nil {
		return nil, err
	}
	object := manifest.DeepCopy()
	if err := p.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.DryRunAll, client.FieldOwner(cluster.FieldOwner)); err != nil {
		return nil, err
	}
	replaced := new(T)
	return replaced, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, replaced)
}

func invalidName(namespace, name string) string {
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return "metadata.namespace is not the name of a namespace"
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return "metadata.name is missing, or is not the name of an object"
	}
	return ""
}

// maxCorrections is how often a refused manifest is tried again: without unknown fields, with values of the right form, and then all rules are
// checked.
const maxCorrections = 4

// refuse finds all that the API server says against a manifest. A wrong value keeps it from checking other rules, so that value is replaced by the
// present one, and the rest is tried again.
func refuse[T any, P interface {
	*T
	client.Object
}](ctx context.Context, p *planner, manifest Manifest, o *Object[T], err error) error {
	var live client.Object
	present := map[string]any{}
	if o.Before != nil {
		live = P(o.Before)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
		if err != nil {
			return fmt.Errorf("read %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
		}
		present = content
	}
	corrected := manifest.Object.DeepCopy()
	unstructured.RemoveNestedField(corrected.Object, "status")
	var all cluster.Problems
	for range maxCorrections {
		found := cluster.NewProblems(err)
		if more := all.Add(found); !found.Incomplete || !more || !found.Correct(corrected, present) {
			break
		}
		sent := corrected.DeepCopy()
		if err = p.send(ctx, sent, live); err == nil {
			after := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(sent.Object, after); err != nil {
				return fmt.Errorf("read %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
			}
			o.Corrected = after
			break
		}
		if !cluster.RefusesObject(err) {
			return fmt.Errorf("try %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
		}
	}
	o.Refused = all.String()
	return nil
}

// send does what would apply the object, in a dry run: kubectl apply and Argo CD compare three versions, Flux and others own fields.
func (p *planner) send(ctx context.Context, object *unstructured.Unstructured, live client.Object) error {
	owner := applier(live)
	if live != nil && owner == "" {
		if last := live.GetAnnotations()[lastApplied]; last != "" {
			return p.sendPatch(ctx, object, live, []byte(last))
		}
	}
	return p.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(cmp.Or(owner, fluxOwner)), client.ForceOwnership, client.DryRunAll)
}

// appliedByKubectl reports whether kubectl apply manages an object. It keeps fields that it has not set itself.
func appliedByKubectl(live client.Object) bool {
	owner := applier(live)
	return owner == kubectlOwner || owner == "" && live.GetAnnotations()[lastApplied] != ""
}

// lastApplied is the manifest that kubectl apply, or Argo CD, applied last.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (p *planner) sendPatch(ctx context.Context, object *unstructured.Unstructured, live client.Object, last []byte) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return err
	}
	before, err := json.Marshal(content)
	if err != nil {
		return err
	}
	after, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, after, before)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return p.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.DryRunAll, client.FieldOwner(cluster.FieldOwner), client.FieldValidation(metav1.FieldValidationStrict))
}

// appliers own what they apply. Their names are in this order, if there are several.
var appliers = []string{fluxOwner, "argocd-controller", "helm-controller", "helm", kubectlOwner}

const (
	fluxOwner    = "kustomize-controller"
	kubectlOwner = "kubectl"
)

// applier is the field manager that owns fields of the spec by server-side apply; empty: none does.
func applier(live client.Object) string {
	if live == nil {
		return ""
	}
	var owners []string
	for _, entry := range live.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) {
			owners = append(owners, entry.Manager)
		}
	}
	for _, known := range appliers {
		if slices.Contains(owners, known) {
			return known
		}
	}
	return strings.Join(owners[:min(len(owners), 1)], "")
}

// managers are the GitOps tools of the objects that have a manifest.
func managers[T any, P interface {
	*T
	client.Object
}](objects []Object[T]) (found []gitops.Manager) {
	for _, o := range objects {
		if o.Source == "" || o.Before == nil {
			continue
		}
		if manager := gitops.FindManager(P(o.Before)); manager != (gitops.Manager{}) {
			found = append(found, manager)
		}
	}
	return found
}

// pruned plans the deletion of the objects that no manifest has and one of the managers manages; without a manager, those that kubectl applied or
// any tool manages. Whether a tool deletes them depends on its settings and on annotations of the object, which are not read here.
func pruned[T any, P interface {
	*T
	client.Object
}](p *planner, objects []Object[T], owners []gitops.Manager) {
	for i := range objects {
		o := &objects[i]
		live := P(o.Before)
		if o.Source != "" || live == nil {
			continue
		}
		manager := gitops.FindManager(live)
		_, applied := live.GetAnnotations()[lastApplied]
		if len(owners) > 0 && !slices.Contains(owners, manager) || len(owners) == 0 && manager == (gitops.Manager{}) && !applied {
			continue
		}
		o.PrunedBy = cmp.Or(cluster.ManagerName(manager), "kubectl apply")
		p.dryRuns = append(p.dryRuns, func(ctx context.Context) error {
			err := p.Delete(ctx, live.DeepCopyObject().(client.Object), client.DryRunAll) //nolint:forcetypeassert // a copy is of the same type
			switch {
			case err == nil || apierrors.IsNotFound(err):
				o.After = nil
			case cluster.RefusesObject(err):
				o.Refused = cluster.NewProblems(err).String()
			default:
				return fmt.Errorf("try to delete %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
			}
			return nil
		})
	}
}

// findDigests lists the ApiKeys with the digests of the manifests, in all namespaces if that is allowed.
func (p *planner) findDigests(ctx context.Context) error {
	p.state.Digests = map[string][]string{}
	for _, o := range p.state.ApiKeys {
		if o.Source != "" && o.After != nil && o.After.Spec.KeyDigest != "" {
			p.state.Digests[o.After.Spec.KeyDigest] = nil
		}
	}
	if len(p.state.Digests) == 0 {
		return nil
	}
	found := map[string]map[string]bool{}
	seen := func(key *v1alpha1.ApiKey) {
		if key == nil || key.Spec.KeyDigest == "" {
			return
		}
		if found[key.Spec.KeyDigest] == nil {
			found[key.Spec.KeyDigest] = map[string]bool{}
		}
		found[key.Spec.KeyDigest][key.Namespace+"/"+key.Name] = true
	}
	for _, o := range p.state.ApiKeys {
		seen(o.Before)
		seen(o.After)
	}
	var all v1alpha1.ApiKeyList
	err := p.List(ctx, &all)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("list ApiKeys: %w", err)
	}
	for i := range all.Items {
		seen(&all.Items[i])
	}
	for digest := range p.state.Digests {
		p.state.Digests[digest] = slices.Sorted(maps.Keys(found[digest]))
	}
	return nil
}
