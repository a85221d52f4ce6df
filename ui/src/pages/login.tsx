import { useState } from 'preact/hooks';

import { useWords } from '../i18n/index.ts';
import { TextField } from '../parts/field.tsx';
import { Switches } from '../parts/shell.tsx';
import { Problem } from '../parts/states.tsx';
import { ApiError } from '../server/api.ts';
import { useAction } from '../server/resource.ts';
import { logIn, tokenOf } from '../server/session.ts';

export function Login(props: { refused: ApiError | null; onIn: () => void }) {
  const t = useWords();
  const [text, setText] = useState('');
  const [isRefused, setIsRefused] = useState(props.refused !== null);
  const enter = useAction(async () => {
    const token = tokenOf(text);
    if (token === null) throw new ApiError(400, t.login.empty);
    try {
      await logIn(token);
      props.onIn();
    } catch (failure) {
      const isWrong = failure instanceof ApiError && failure.status === 401;
      setIsRefused(isWrong);
      if (!isWrong) throw failure;
    }
  });
  return (
    <main class="alone">
      <p class="wordmark">kagiri</p>
      <h1>{t.login.title}</h1>
      <p>{t.login.lead}</p>
      <p>{t.login.help}</p>
      {isRefused && (
        <div class="problem" role="alert">
          <p>{t.login.wrong}</p>
        </div>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          enter.run();
        }}
      >
        <TextField
          label={t.login.field}
          value={text}
          onValue={setText}
          input={{ autofocus: true, name: 'token' }}
        />
        <Problem error={enter.error} />
        <button type="submit" class="primary" disabled={enter.isRunning}>
          {enter.isRunning ? t.login.checking : t.login.button}
        </button>
      </form>
      <p class="soft">{t.login.again}</p>
      <Switches />
    </main>
  );
}
