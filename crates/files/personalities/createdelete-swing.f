# Two groups of threads take turns: one creates files, the other deletes them.
set $dir=/tmp
set $nfiles=10000
set $meandirwidth=100
set $meanfilesize=16k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=8
set $iosize=1m
set $count=100
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=50
define process name=swing,instances=1 {
  thread name=creator,memsize=10m,instances=$nthreads {
    flowop createfile name=create,filesetname=bigfileset,fd=1
    flowop writewholefile name=write,fd=1,iosize=$iosize
    flowop closefile name=close,fd=1
    flowop sempost name=created,value=1,target=candelete,blocking
    flowop wakeup name=tell,target=watch
  }
  thread name=deleter,memsize=10m,instances=$nthreads {
    flowop semblock name=candelete,value=1,highwater=$count
    flowop deletefile name=delete,filesetname=bigfileset
  }
  thread name=watcher,memsize=1m,instances=1 {
    flowop block name=watch
    flowop statfile name=stat,filesetname=bigfileset
  }
}
run 60
