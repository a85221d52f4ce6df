# A warehouse database with a set of files per table: random reads, block writers, a log, think times.
set $dir=/tmp
set $eventrate=0
set $iosize=2k
set $nthreads=20
set $ndbwriters=4
set $filesize=8m
set $thinktime=1
eventgen rate=$eventrate
define fileset name=warehouse,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=district,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=customer,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=history,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=neworder,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=orders,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=orderline,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=item,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=stock,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=undo,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=system,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=temp,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index1,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index2,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index3,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index4,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=index5,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=rollback,path=$dir,size=$filesize,entries=2,dirwidth=1024,prealloc
define fileset name=logfile,path=$dir,size=$filesize,entries=1,dirwidth=1024,prealloc
define process name=lgwr,instances=1 {
  thread name=lgwr,memsize=1m {
    flowop write name=logwrite,filesetname=logfile,iosize=256k,dsync
    flowop semblock name=logblock,value=320,highwater=1000
  }
}
define process name=dbwr,instances=$ndbwriters {
  thread name=dbwr,memsize=1m {
    flowop aiowrite name=stockwrite,filesetname=stock,iosize=$iosize,random,iters=10,opennext
    flowop aiowrite name=orderwrite,filesetname=orderline,iosize=$iosize,random,iters=10,opennext
    flowop aiowait name=writerwait
    flowop semblock name=writerblock,value=100,highwater=2000
  }
}
define process name=terminal,instances=1 {
  thread name=terminal,memsize=1m,instances=$nthreads {
    flowop read name=read_warehouse,filesetname=warehouse,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_district,filesetname=district,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_customer,filesetname=customer,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_history,filesetname=history,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_neworder,filesetname=neworder,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_orders,filesetname=orders,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_orderline,filesetname=orderline,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_item,filesetname=item,iosize=$iosize,random,iters=2,opennext
    flowop read name=read_stock,filesetname=stock,iosize=$iosize,random,iters=2,opennext
    flowop hog name=compute,value=20000
    flowop sempost name=wakelog,value=1,target=logblock,blocking
    flowop sempost name=wakewriters,value=1,target=writerblock,blocking
    flowop eventlimit name=limit
  }
  thread name=operator,memsize=1m,instances=1 {
    flowop delay name=think,value=$thinktime
    flowop read name=audit,filesetname=history,iosize=$iosize,random,opennext
  }
}
run 60
