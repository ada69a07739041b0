package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// floor writes what the operator writes: no cache, no watch, no queue, no decision. It has the versions of its objects from their
// creation, where the operator has to list them.
type floor struct {
	*stand
	world
	ctx    context.Context //nolint:containedctx // of events, which outlive the pass they tell of as they do in the operator
	events sync.WaitGroup
	failed chan error
}

func (s *stand) newFloor(ctx context.Context, w world) *floor {
	return &floor{stand: s, world: w, ctx: ctx, failed: make(chan error, 1)}
}

// run makes the Merchants of the first part, and all the ApiKeys from one to before another, ready. The time is that until the last
// status is written; events may come a moment later, as the operator's do.
func (f *floor) run(ctx context.Context, from, to int) (time.Duration, error) {
	started := time.Now()
	if from == 0 {
		if err := each(ctx, f.settings.merchantWorkers, len(f.merchants), f.merchant); err != nil {
			return 0, fmt.Errorf("the floor: %w", err)
		}
	}
	err := each(ctx, f.settings.keyWorkers, to-from, func(ctx context.Context, i int) error { return f.key(ctx, from+i) })
	took := time.Since(started)
	f.events.Wait()
	select {
	case err = <-f.failed:
	default:
	}
	if err != nil {
		return 0, fmt.Errorf("the floor: %w", err)
	}
	return took, nil
}

// hold adds the finalizer and returns the version that the object has then.
func (f *floor) hold(ctx context.Context, resource, name, version string) (string, error) {
	patch := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"resourceVersion":%q}}`, v1alpha1.Finalizer, version)
	answer, err := f.objects.Patch(types.MergePatchType).Namespace(f.tenant()).Resource(resource).Name(name).
		Param("fieldManager", subject.FieldOwner).Body([]byte(patch)).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var held metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &held); err != nil {
		return "", err
	}
	return held.ResourceVersion, nil
}

// report applies a status.
func (f *floor) report(ctx context.Context, resource, name string, status any) error {
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	_, err = f.objects.Patch(types.ApplyPatchType).Namespace(f.tenant()).Resource(resource).Name(name).SubResource(statusSubresource).
		Param("fieldManager", subject.FieldOwner).Param("force", "true").Body(body).DoRaw(ctx)
	return err
}

// tell records an event beside the pass.
func (f *floor) tell(kind string, object metav1.Object, reason, action, note string) {
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: f.tenant(), Name: fmt.Sprintf("%s.%x", object.GetName(), now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: subject.FieldOwner, ReportingInstance: subject.FieldOwner + "-floor",
		Action: action, Reason: reason, Note: note, Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Namespace: f.tenant(), Name: object.GetName(),
			UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		},
	}
	f.events.Go(func() {
		if _, err := f.plain.EventsV1().Events(f.tenant()).Create(f.ctx, event, metav1.CreateOptions{}); err != nil {
			select {
			case f.failed <- err:
			default:
			}
		}
	})
}
