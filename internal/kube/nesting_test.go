package kube

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

func nested(depth int, leaf string) string {
	return strings.Repeat(`{"a":[`, depth/2) + leaf + strings.Repeat(`]}`, depth/2)
}

func TestShallowBody(t *testing.T) {
	const strange = `{"{[\"\\":"}]\\\"[","b":[1,-2.5e3,true,null,{}]}`
	for name, tc := range map[string]struct{ json, want string }{
		"flat":                 {strange, strange},
		"several, as a watch":  {strange + "\n" + strange, strange + "\n" + strange},
		"as deep as it may be": {nested(maxNesting, ""), nested(maxNesting, "")},
		"too deep":             {`[` + nested(9_998, `"x"`) + `,7]`, `[` + nested(maxNesting-2, `{}`) + `,7]`},
		"strange, and too deep": {
			nested(maxNesting, strange) + strange, nested(maxNesting, "") + strange,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(tc.json), iotest.OneByteReader(strings.NewReader(tc.json))} {
				got, err := io.ReadAll(&shallowBody{ReadCloser: io.NopCloser(reader)})
				if err != nil || string(got) != tc.want {
					t.Errorf("%v: read %.200s, want %.200s", err, got, tc.want)
				}
			}
		})
	}
}

// A tenant who may create an ApiKey sends managed fields of 9,995 levels, which the API server stores.
func TestBoundNesting_DeepManagedFields(t *testing.T) {
	cluster := kubetest.Start(t).Config
	connections, err := rest.HTTPClientFor(cluster)
	if err != nil {
		t.Fatal(err)
	}
	const levels = 9_995
	fields := strings.Repeat(`{"f:a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
	object := fmt.Appendf(nil, `{"apiVersion": "merchant-operator.io/v1alpha1", "kind": "ApiKey", "spec": {"merchantRef": {"name": "acme"}},
		"metadata": {"name": "deep", "managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "merchant-operator.io/v1alpha1",
		"time": "2026-01-01T12:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": %s}]}}`, fields)
	url := strings.TrimSuffix(cluster.Host, "/") + "/apis/merchant-operator.io/v1alpha1/namespaces/default/apikeys"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := connections.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%s, %v", response.Status, err)
	}

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list := func(config *rest.Config) error {
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		var keys v1alpha1.ApiKeyList
		if err := c.List(t.Context(), &keys); err != nil {
			return err
		}
		if len(keys.Items) != 1 || keys.Items[0].Spec.MerchantRef.Name != "acme" {
			t.Errorf("the list has %v", keys.Items)
		}
		events, err := c.Watch(t.Context(), &v1alpha1.ApiKeyList{})
		if err != nil {
			return err
		}
		defer events.Stop()
		select {
		case event := <-events.ResultChan():
			if key, ok := event.Object.(*v1alpha1.ApiKey); !ok || key.Name != "deep" {
				return fmt.Errorf("the event is %v", event)
			}
		case <-time.After(time.Minute):
			t.Error("no event")
		}
		return nil
	}
	if err := list(rest.CopyConfig(cluster)); err == nil {
		t.Error("the list of a plain client does not fail: BoundNesting is needed no more")
	}
	bounded := rest.CopyConfig(cluster)
	BoundNesting(bounded)
	if err := list(bounded); err != nil {
		t.Error(err)
	}
}
