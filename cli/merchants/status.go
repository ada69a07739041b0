package merchants

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// StatusCommand returns kubectl merchant status.
func StatusCommand(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{streams, access, now}
	var allNamespaces bool
	cmd := &cobra.Command{
		Use:   "status [MERCHANT]",
		Short: "Show a merchant with its keys, allowlist and webhook, and what to do next",
		Long: "Show a merchant with its keys, allowlist and webhook, and what to do next. Without a name: one line for each merchant.\n\n" +
			"The exit code is 3 if the merchant cannot take payments: it is not ready or not active, or none of its keys works.",
		Example: "  kubectl merchant status -A\n" +
			"  kubectl merchant status acme-coffee -n shops\n" +
			"  kubectl merchant status acme-coffee -n shops -o json",
		Args:              terminal.Arguments("[MERCHANT]"),
		ValidArgsFunction: c.access.CompleteMerchants,
	}
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "show the merchants of all namespaces")
	out := terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if allNamespaces && len(args) > 0 {
			return terminal.Usage("Leave out -A, or the name.", "a name is in one namespace")
		}
		kube, err := c.access.Connect()
		if err != nil {
			return err
		}
		if len(args) > 0 {
			return c.showMerchant(cmd.Context(), kube, args[0], out)
		}
		return c.listMerchants(cmd.Context(), kube, allNamespaces, out)
	}
	return cmd
}

// merchantStatus is what is known of a merchant; -o json prints it.
type merchantStatus struct {
	Namespace   string                 `json:"namespace"`
	Name        string                 `json:"name"`
	MerchantID  string                 `json:"merchantID,omitempty"`
	DisplayName string                 `json:"displayName"`
	State       v1alpha1.MerchantState `json:"state"`
	Created     metav1.Time            `json:"created"`
	Currency    v1alpha1.Currency      `json:"currency"`
	// TimeZone is in which the merchant's day begins.
	TimeZone  v1alpha1.TimeZone  `json:"timeZone"`
	Ready     Readiness          `json:"ready"`
	Allowlist []v1alpha1.IPBlock `json:"allowlist"`
	// AllowlistMode says whether the API refuses other addresses.
	AllowlistMode v1alpha1.IPAllowlistMode `json:"allowlistMode"`
	// Refused is what the allowlist has refused in the last day, or would have; absent: nothing.
	Refused *v1alpha1.AllowlistStatus `json:"refused,omitempty"`
	Webhook *Webhook                  `json:"webhook,omitempty"`
	Keys    []keyStatus               `json:"keys"`
	// Next is what to do, the most urgent first.
	Next []string `json:"next"`
}

// Readiness is a condition, Ready or Usable.
type Readiness struct {
	Status  bool   `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// keyStatus is what is known of an ApiKey. It never has a key.
type keyStatus struct {
	Name   string               `json:"name"`
	KeyID  string               `json:"keyID,omitempty"`
	Prefix string               `json:"prefix,omitempty"`
	Mode   v1alpha1.ApiKeyMode  `json:"mode"`
	State  v1alpha1.ApiKeyState `json:"state"`
	Ready  Readiness            `json:"ready"`
	// Usable says whether requests with the key are accepted.
	Usable     Readiness                `json:"usable"`
	Generation int64                    `json:"generation"`
	Issued     *v1alpha1.RotationStatus `json:"issued,omitempty"`
	LastUsed   *metav1.Time             `json:"lastUsed,omitempty"`
	ExpiresAt  *metav1.Time             `json:"expiresAt,omitempty"`
	Rotates    *metav1.Time             `json:"rotates,omitempty"`
	Previous   []v1alpha1.PreviousKey   `json:"previous,omitempty"`
	// OldKeyInUse is the status of that condition: True, False or Unknown.
	OldKeyInUse metav1.ConditionStatus `json:"oldKeyInUse,omitempty"`
	// Secret has the current key; empty: none has.
	Secret string `json:"secret,omitempty"`
}

// oldKeyUsed is when an old key was last used; nil: no use is known.
func (k keyStatus) oldKeyUsed() (used *metav1.Time) {
	for _, previous := range k.Previous {
		if used == nil || used.Before(previous.LastUsedTime) {
			used = previous.LastUsedTime
		}
	}
	return used
}

// Webhook is the endpoint of a merchant; -o json prints it.
type Webhook struct {
	URL string `json:"url"`
	// Healthy is nil before the first event.
	Healthy                *Readiness `json:"healthy,omitempty"`
	v1alpha1.WebhookStatus `json:",inline"`
}

// Names of kinds in -o name.
const (
	merchantKind = "merchant.merchant-operator.io"
	apiKeyKind   = "apikey.merchant-operator.io"
)

// Names returns the names of the Merchant and of its ApiKeys, for -o name.
func (s merchantStatus) Names() []string {
	names := []string{merchantKind + "/" + s.Name}
	for _, key := range s.Keys {
		names = append(names, apiKeyKind+"/"+key.Name)
	}
	return names
}

// NewWebhook returns the endpoint of a merchant with its health; nil: the merchant has no webhook.
func NewWebhook(merchant *v1alpha1.Merchant) *Webhook {
	if merchant.Spec.Webhook == nil {
		return nil
	}
	webhook := &Webhook{URL: merchant.Spec.Webhook.URL}
	if merchant.Status.Webhook != nil {
		webhook.WebhookStatus = *merchant.Status.Webhook
	}
	if meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition) != nil {
		webhook.Healthy = new(newReadiness(merchant.Status.Conditions, v1alpha1.WebhookHealthyCondition))
	}
	return webhook
}

// newMerchantStatus returns what is known of a merchant; all are the ApiKeys of its namespace, or of all namespaces.
func newMerchantStatus(merchant *v1alpha1.Merchant, all []v1alpha1.ApiKey, now time.Time) merchantStatus {
	keys := ownKeys(all, merchant)
	s := merchantStatus{
		Namespace: merchant.Namespace, Name: merchant.Name, MerchantID: merchant.Status.MerchantID, DisplayName: merchant.Spec.DisplayName,
		State: merchant.Spec.State, Created: merchant.CreationTimestamp, Currency: merchant.Spec.Currency, TimeZone: cmp.Or(merchant.Spec.TimeZone, v1alpha1.DefaultTimeZone), Ready: newReadiness(merchant.Status.Conditions, v1alpha1.ReadyCondition),
		Allowlist: slices.Concat([]v1alpha1.IPBlock{}, merchant.Spec.IPAllowlist), AllowlistMode: merchant.Spec.IPAllowlistMode,
		Refused: merchant.Status.Allowlist, Webhook: NewWebhook(merchant), Keys: make([]keyStatus, len(keys)),
	}
	for i, key := range keys {
		s.Keys[i] = keyStatus{
			Name: key.Name, KeyID: key.Status.KeyID, Prefix: key.Status.Prefix, Mode: key.Spec.Mode, State: key.Spec.State, Ready: newReadiness(key.Status.Conditions, v1alpha1.ReadyCondition),
			Usable:     newReadiness(key.Status.Conditions, v1alpha1.UsableCondition),
			Generation: key.Status.KeyGeneration, Issued: key.Status.LastRotation, LastUsed: key.Status.LastUsedTime, ExpiresAt: key.Spec.ExpiresAt,
			Rotates: key.Status.NextRotationTime, Previous: key.Status.PreviousKeys,
		}
		if used := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.OldKeyInUseCondition); used != nil {
			s.Keys[i].OldKeyInUse = used.Status
		}
		if meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.DeliveredCondition) {
			s.Keys[i].Secret = key.DeliverySecretName()
		}
	}
	s.Next = advice(s, merchant, keys, all, now)
	return s
}

func newReadiness(conditions []metav1.Condition, kind string) Readiness {
	condition := meta.FindStatusCondition(conditions, kind)
	if condition == nil {
		return Readiness{Reason: "Unknown", Message: "the operator has not seen the object yet"}
	}
	return Readiness{condition.Status == metav1.ConditionTrue, condition.Reason, condition.Message}
}

// working is how many keys are accepted.
func (s merchantStatus) working() (n int) {
	for _, key := range s.Keys {
		if key.Usable.Status {
			n++
		}
	}
	return n
}

func (c *commands) showMerchant(ctx context.Context, kube *cluster.Cluster, name string, out *terminal.Output) error {
	merchant, err := kube.Merchant(ctx, name)
	if err != nil {
		return err
	}
	var keys v1alpha1.ApiKeyList
	if err := kube.List(ctx, &keys, client.InNamespace(kube.Namespace)); err != nil {
		return fmt.Errorf("list ApiKeys: %w", err)
	}
	now := c.now()
	s := newMerchantStatus(merchant, keys.Items, now)
	if err := out.Write(c.Out, s, func(to io.Writer) error { return s.writeText(to, now) }); err != nil {
		return err
	}
	if !s.Ready.Status || s.State != v1alpha1.MerchantActive || s.working() == 0 {
		return &terminal.NegativeError{}
	}
	return nil
}

func ownKeys(keys []v1alpha1.ApiKey, merchant *v1alpha1.Merchant) []v1alpha1.ApiKey {
	var own []v1alpha1.ApiKey
	for _, key := range keys {
		if key.Namespace == merchant.Namespace && key.Spec.MerchantRef.Name == merchant.Name {
			own = append(own, key)
		}
	}
	return own
}

func (c *commands) listMerchants(ctx context.Context, kube *cluster.Cluster, allNamespaces bool, out *terminal.Output) error {
	merchants, err := kube.Merchants(ctx, nil, allNamespaces)
	if err != nil {
		return err
	}
	var keys v1alpha1.ApiKeyList
	if err := kube.List(ctx, &keys, kube.In(allNamespaces)); err != nil {
		return fmt.Errorf("list ApiKeys: %w", err)
	}
	now := c.now()
	list := merchantList{Items: make([]merchantStatus, len(merchants)), allNamespaces: allNamespaces}
	for i := range merchants {
		list.Items[i] = newMerchantStatus(&merchants[i], keys.Items, now)
	}
	if len(list.Items) == 0 && out.Format == "" {
		where := "in namespace " + kube.Namespace
		if allNamespaces {
			where = "in any namespace"
		}
		fmt.Fprintf(c.ErrOut, "No merchants %s.\n", where)
		return nil
	}
	return out.Write(c.Out, list, func(to io.Writer) error { return list.writeTable(to, now) })
}

// merchantList is all merchants; -o json prints it.
type merchantList struct {
	Items []merchantStatus `json:"items"`

	allNamespaces bool
}

// Names returns the names of the Merchants, for -o name.
func (l merchantList) Names() []string {
	var names []string
	for _, s := range l.Items {
		names = append(names, merchantKind+"/"+s.Name)
	}
	return names
}

func (l merchantList) writeTable(to io.Writer, now time.Time) error {
	table := terminal.NewTable(to)
	header := []string{"NAME", "STATE", "READY", "KEYS", "LAST USE", "ALLOWLIST", "WEBHOOK", "DEAD LETTERS", "AGE"}
	if l.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	terminal.Row(table, header...)
	for _, s := range l.Items {
		var lastUse *metav1.Time
		for _, key := range s.Keys {
			for _, used := range []*metav1.Time{key.LastUsed, key.oldKeyUsed()} {
				if lastUse == nil || lastUse.Before(used) {
					lastUse = used
				}
			}
		}
		webhook, dead := terminal.None, int64(0)
		if s.Webhook != nil {
			webhook, dead = s.Webhook.Health(), s.Webhook.Dead
		}
		cells := []string{
			s.Name, string(s.State), s.Ready.Reason, fmt.Sprintf("%d/%d", s.working(), len(s.Keys)), terminal.Ago(lastUse, now), s.allowlist(), webhook,
			strconv.FormatInt(dead, 10), terminal.Ago(&s.Created, now),
		}
		if l.allNamespaces {
			cells = append([]string{s.Namespace}, cells...)
		}
		terminal.Row(table, cells...)
	}
	return table.Flush()
}
