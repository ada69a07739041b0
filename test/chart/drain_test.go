package chart

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
)

// The kubelet kills what is left at the end of the grace period, and requests or deliveries with it.
func TestTheGracePeriodsOutlastTheDrain(t *testing.T) {
	grace := func(template corev1.PodTemplateSpec) time.Duration {
		return time.Duration(*template.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	for _, values := range []string{"", "apiserver: {preStopSeconds: 60, drainDelaySeconds: 120}", "apiserver: {preStopSeconds: 0, drainDelaySeconds: 0}"} {
		all := templates(t, values)
		api := all["merchant-operator-apiserver"]
		container := api.Spec.Containers[0]
		drain := apiserver.DefaultOptions().ShutdownTimeout
		if container.Lifecycle != nil {
			drain += time.Duration(container.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		}
		for _, argument := range container.Args {
			if text, found := strings.CutPrefix(argument, "--drain-delay="); found {
				delay, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				drain += delay
			}
		}
		if grace(api) < drain+5*time.Second {
			t.Errorf("with %q the apiserver has %s to end and needs %s", values, grace(api), drain)
		}
		if got, need := grace(all["merchant-operator-dispatcher"]), dispatcher.DefaultOptions().ShutdownTimeout; got < need+5*time.Second {
			t.Errorf("the dispatcher has %s to end and needs %s", got, need)
		}
		if got, need := grace(all["merchant-operator"]), controllers.DefaultOptions().ShutdownTimeout; got < need+5*time.Second {
			t.Errorf("the operator has %s to end and needs %s", got, need)
		}
	}
}
