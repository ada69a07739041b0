package support

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// ReportCommand returns kubectl merchant report. The version is the plugin's.
func ReportCommand(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time, version string) *cobra.Command {
	c := &commands{streams, access, now, version}
	var allNamespaces bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a report for support, without keys, secrets and personal data",
		Long: "Write a report for support as YAML: versions, merchants and keys with their status, events, pods. Keys, digests, secrets, e-mail\n" +
			"addresses and names of people are not in it, nor the path of a webhook. Read it before you send it. A part that you have no right\n" +
			"to read is left out, and the report says which rule to add.",
		Example: "  kubectl merchant report -n shops > report.yaml\n" +
			"  kubectl merchant report -A > report.yaml",
		Args: terminal.Arguments(),
	}
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "report the merchants of all namespaces")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kube, err := c.access.Connect()
		if err != nil {
			return err
		}
		collected, err := c.collect(cmd.Context(), kube, kube.In(allNamespaces))
		if err != nil {
			return err
		}
		var text strings.Builder
		if err := terminal.WriteYAML(&text, collected); err != nil {
			return err
		}
		fmt.Fprint(c.Out, redact(text.String()))
		for _, missing := range collected.leftOut {
			fmt.Fprint(c.ErrOut, "left out: "+missing.String())
		}
		return nil
	}
	return cmd
}

// report is what support needs. It is built of named fields: what nobody thought of is not in it.
type report struct {
	Time      time.Time      `json:"time"`
	Versions  versions       `json:"versions"`
	Missing   []string       `json:"missing,omitempty"`
	Pods      []podReport    `json:"pods"`
	Merchants []reported     `json:"merchants"`
	ApiKeys   []reported     `json:"apiKeys"`
	Events    []eventsReport `json:"events"`

	// leftOut is Missing for the person who runs the command, whom it names.
	leftOut []cluster.MissingRight
}

// reported is a Merchant or an ApiKey.
type reported struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Generation int64       `json:"generation"`
	Created    metav1.Time `json:"created"`
	Deleted    bool        `json:"deleted,omitempty"`
	// Managers are the field managers.
	Managers []string `json:"managers"`
	Spec     any      `json:"spec"`
	Status   any      `json:"status"`
}

type podReport struct {
	Name     string          `json:"name"`
	Role     string          `json:"role"`
	Phase    corev1.PodPhase `json:"phase"`
	Ready    bool            `json:"ready"`
	Restarts int32           `json:"restarts"`
	Image    string          `json:"image"`
	Waiting  string          `json:"waiting,omitempty"` // why a container does not run
}

type eventsReport struct {
	Time   metav1.MicroTime `json:"time"`
	Object string           `json:"object"`
	Type   string           `json:"type"`
	Reason string           `json:"reason"`
	Note   string           `json:"note"`
}

// collect reads every part. A missing right costs its part only.
func (c *commands) collect(ctx context.Context, kube *cluster.Cluster, namespace client.InNamespace) (report, error) {
	r := report{Time: c.now().UTC(), Versions: versions{Client: c.version}, Pods: []podReport{}, Merchants: []reported{}, ApiKeys: []reported{}, Events: []eventsReport{}}
	var merchants v1alpha1.MerchantList
	var keys v1alpha1.ApiKeyList
	var events eventsv1.EventList
	var pods corev1.PodList
	var deployments appsv1.DeploymentList
	installed := []client.ListOption{client.InNamespace(c.access.SystemNamespace), client.MatchingLabels{cluster.ProductLabel: cluster.Product}}
	for _, part := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{{&merchants, []client.ListOption{namespace}}, {&keys, []client.ListOption{namespace}}, {&events, []client.ListOption{namespace}}, {&pods, installed}, {&deployments, installed}} {
		err := kube.List(ctx, part.list, part.options...)
		if missing, ok := cluster.ParseForbidden(err); ok {
			r.leftOut = append(r.leftOut, missing)
			missing.User = redacted
			r.Missing = append(r.Missing, missing.String())
		} else if err != nil {
			return r, fmt.Errorf("collect the report: %w", err)
		}
	}
	r.Versions.Server = installedVersions(deployments.Items)
	for i := range merchants.Items {
		r.Merchants = append(r.Merchants, reportedMerchant(&merchants.Items[i]))
	}
	for i := range keys.Items {
		r.ApiKeys = append(r.ApiKeys, reportedKey(&keys.Items[i]))
	}
	for i := range events.Items {
		if event := &events.Items[i]; event.Regarding.APIVersion == v1alpha1.SchemeGroupVersion.String() && !byPerson(event) {
			r.Events = append(r.Events, eventsReport{event.EventTime, event.Regarding.Kind + " " + event.Regarding.Namespace + "/" + event.Regarding.Name, event.Type, event.Reason, reportedNote(event)})
		}
	}
	for i := range pods.Items {
		r.Pods = append(r.Pods, reportedPod(&pods.Items[i]))
	}
	return r, nil
}

// byPerson reports whether an event says what a person did in the console, with their name.
func byPerson(event *eventsv1.Event) bool {
	return strings.Contains(event.ReportingController, "console")
}

// reportedNote is the note of an event if it is one of the product's. Other programs may name people.
func reportedNote(event *eventsv1.Event) string {
	if strings.HasPrefix(event.ReportingController, cluster.Product) {
		return event.Note
	}
	return redacted
}

func reportedMerchant(merchant *v1alpha1.Merchant) reported {
	spec := merchant.Spec.DeepCopy()
	spec.DisplayName = "" // its name is enough
	if spec.Webhook != nil {
		spec.Webhook.URL, spec.Webhook.RotationTrigger = urlOrigin(spec.Webhook.URL), redactTrigger(spec.Webhook.RotationTrigger)
	}
	if spec.Page != nil {
		spec.Page.ReturnURL = urlOrigin(spec.Page.ReturnURL)
	}
	return newReported(merchant, spec, &merchant.Status)
}

func reportedKey(key *v1alpha1.ApiKey) reported {
	spec, status := key.Spec.DeepCopy(), key.Status.DeepCopy()
	if spec.KeyDigest != "" {
		spec.KeyDigest = redacted
	}
	same := spec.Rotation.Trigger == status.ObservedTrigger
	spec.Rotation.Trigger, status.ObservedTrigger = redactTrigger(spec.Rotation.Trigger), redactTrigger(status.ObservedTrigger)
	if !same && status.ObservedTrigger != "" {
		status.ObservedTrigger += ", another one"
	}
	if status.LastRotation != nil && status.LastRotation.Actor != "" {
		status.LastRotation.Actor = redacted
	}
	return newReported(key, spec, status)
}

func newReported(object client.Object, spec, status any) reported {
	r := reported{
		Namespace: object.GetNamespace(), Name: object.GetName(), Generation: object.GetGeneration(), Created: object.GetCreationTimestamp(),
		Deleted: object.GetDeletionTimestamp() != nil, Spec: spec, Status: status,
	}
	for _, entry := range object.GetManagedFields() {
		manager := entry.Manager
		if !knownManagers.MatchString(manager) {
			manager = redacted // whoever applies chooses it
		}
		r.Managers = append(r.Managers, manager)
	}
	return r
}

func reportedPod(pod *corev1.Pod) podReport {
	r := podReport{Name: pod.Name, Role: pod.Labels[cluster.RoleLabel], Phase: pod.Status.Phase, Ready: len(pod.Status.ContainerStatuses) > 0}
	for _, container := range pod.Spec.Containers[:1] {
		r.Image = container.Image
	}
	for _, status := range pod.Status.ContainerStatuses {
		r.Restarts += status.RestartCount
		r.Ready = r.Ready && status.Ready
		if status.State.Waiting != nil {
			r.Waiting = status.State.Waiting.Reason
		}
	}
	return r
}

const redacted = "[redacted]"

// knownManagers are the field managers of the product and of the usual tools.
var knownManagers = regexp.MustCompile(`^(merchant-operator[a-z-]*|kubectl(-client-side-apply|-create|-edit|-patch|-annotate|-label|-merchant)?|helm|(kustomize|helm)-controller|argocd-(controller|application-controller))$`)

// redactTrigger keeps that there is a trigger: people write into it why they rotate, and who asked for it.
func redactTrigger(trigger string) string {
	if trigger == "" {
		return ""
	}
	return redacted
}

// urlOrigin is a URL without its path and query, which often have a token.
func urlOrigin(url string) string {
	found := origin.FindString(url)
	if found == "" || found == url {
		return found
	}
	return found + "/" + redacted
}

var origin = regexp.MustCompile(`^https?://[^/?#@]*`)

// secretForms are what must not be in a report, wherever somebody has put it: keys of any kind, signing secrets, digests, tokens,
// the user info of a URL, e-mail addresses.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`mk_[a-z]+_[a-z2-7]{12}_[0-9A-Za-z]{5,}`),
	regexp.MustCompile(`whsec_[0-9A-Za-z+/=]+`),
	regexp.MustCompile(`\b[0-9a-f]{64}\b`),
	regexp.MustCompile(`\bey[0-9A-Za-z_-]+\.[0-9A-Za-z_-]+\.[0-9A-Za-z_-]+`),
	regexp.MustCompile(`[0-9A-Za-z._%+-]+(:[^\s/@"]*)?@[0-9A-Za-z.-]+`),
}

func redact(text string) string {
	for _, form := range secretForms {
		text = form.ReplaceAllString(text, redacted)
	}
	return text
}
